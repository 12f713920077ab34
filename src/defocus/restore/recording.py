"""A training step as one CUDA graph: a network of many small kernels is then limited by the GPU, not by its host.

Recorded are the loss, its gradients, their clipping and the optimizer's step, for each shape of batch once. What
changes from step to step is in tensors that stay where they are: the batch is copied into them.
"""

from __future__ import annotations

from collections.abc import Callable

from ._torch import Tensor, torch

WARM = 3  # steps as usual before one is recorded: they compile, tune and fill


class RecordedStep:
    """Calls `update(image, target)`, which gives a tensor of numbers, and replays it from the fourth time on."""

    def __init__(self, update: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._update = update
        self._stream = torch.cuda.Stream()
        self._calls: dict[tuple[int, ...], int] = {}
        self._graphs: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}

    def __call__(self, image: Tensor, target: Tensor) -> Tensor:
        shape = tuple(image.shape)
        if shape in self._graphs:
            graph, own_image, own_target, row = self._graphs[shape]
            own_image.copy_(image)
            own_target.copy_(target)
            graph.replay()
            return row.clone()
        if self._calls.get(shape, 0) >= WARM:
            self._graphs[shape] = self._recorded(image.clone(), target.clone())
            return self(image, target)
        self._calls[shape] = self._calls.get(shape, 0) + 1
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            row = self._update(image, target)
        torch.cuda.current_stream().wait_stream(self._stream)
        return row

    def _recorded(self, image: Tensor, target: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # JAX may use the device from other threads meanwhile.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            row = self._update(image, target)
        return graph, image, target, row
