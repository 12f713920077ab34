"""For tests of networks: one thread, since those of a few channels only wait in more; weights that do something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_nafnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With weights that matter: fresh ones leave the picture as it is."""
    from defocus.restore.models import build_model
    from defocus.restore.models.checkpoints import save_weights

    torch.manual_seed(2)
    model = build_model("nafnet", "small", width=8, encoder_blocks=(1, 1), decoder_blocks=(1, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            if float(parameter.abs().max()) == 0.0:
                parameter.normal_(0.0, 0.1)
    file = tmp_path_factory.mktemp("weights") / "tiny.pth"
    save_weights(file, "nafnet", model.options.model_dump(), model.state_dict())
    return file
