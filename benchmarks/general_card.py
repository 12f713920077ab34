"""The model card of the weights of `defocus deblur`: what they learnt, how well, and the licence of every photograph.

`general_training.py card` writes it, from the reports of the other stages.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

from defocus.files.ownership import file_sum

LIMITS = (
    "For defocus up to a radius of 16 pixels; not for motion blur. Trained on scenes that are composed of photographs: "
    "on real photographs it may leave blur where edges of depth are many, and cannot bring back what is lost."
)
COMMAND = "python benchmarks/general_training.py all WORK --minutes M"


def earlier_training(weights: Path) -> dict[str, Any]:
    """How weights have been trained, and on what bank, by the card beside them."""
    file = weights.with_suffix(".json")
    card = json.loads(file.read_text()) if file.is_file() else {}
    if card.get("sha256") != file_sum(weights):
        sys.exit(f"{file}: no card of these weights: how long they have been trained is to be known")
    return {key: card[key] for key in ("sha256", "bank")} | card["training"]


def write_card(arguments: argparse.Namespace) -> None:
    """The model card beside the weights that are to be shipped: general.json, and general.md for people.

    The index of photographs is a CSV with the columns file, author, licence and source; each of `prepare`'s photographs
    must be in it.
    """
    with arguments.index.open(newline="", encoding="utf-8") as lines:
        index = {Path(row["file"]).stem: row for row in csv.DictReader(lines)}
    files = sorted(path.stem for path in (arguments.data / "photos").iterdir())
    unknown = [name for name in files if name not in index]
    if unknown:
        sys.exit(f"{arguments.index}: without {', '.join(unknown[:5])}: licences of all photographs are needed")
    photographs = [{key: index[name][key] for key in ("file", "author", "licence", "source")} for name in files]
    reports = {name: json.loads((arguments.out / f"general_{name}.json").read_text())
               for name in ("data", "bank", "train", "training")}  # fmt: skip
    training = {key: reports["train"][key] for key in ("steps", "batch", "crop", "seconds")}
    start = reports["train"].get("start")
    if start:
        if any(training[key] != start[key] for key in ("batch", "crop")):
            sys.exit("--start: trained in other batches or crops: one number of steps would be of both")
        training |= {key: training[key] + start[key] for key in ("steps", "seconds")} | {"start": start}
    bank = {key: reports["bank"][key] for key in ("settings", "psfs")}
    card = {
        "name": "general", "sha256": file_sum(arguments.weights), "command": COMMAND,
        "bank": bank, "lenses": reports["data"]["lenses"], "training": training,
        "test": reports["data"]["pairs"]["test"],
        "levels": reports["training"]["levels"], "limits": LIMITS, "photographs": photographs,
    }  # fmt: skip
    (arguments.out / "general.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    gains = ", ".join(
        f"{one['gain']:+.2f} dB at {one['level_px'][0]:g} to {one['level_px'][1]:g} px" for one in card["levels"]
    )
    about = (
        f"Gain in PSNR on {card['test']} pairs of lenses, lens families and photographs that it has not seen: {gains}. "
        f"A sharp picture comes back at {min(one['sharp_out'] for one in card['levels']):.0f} dB. "
        f"{training['steps']:,} steps of {training['batch']} crops of {training['crop']} pixels, each crop a scene of "
        f"its own, through {bank['psfs']:,} PSFs of {bank['settings']:,} settings of {card['lenses']['train']} lenses; "
        f"{training['seconds'] / 60:.0f} minutes on one {reports['train']['device']}. `{COMMAND}` makes such weights "
        "again; the photographs are those below, 70 % of them for training, beside cloth that the bank draws."
    )
    if start:
        about += (
            f" The last {reports['train']['steps']:,} steps are a training of their own, which began with the weights "
            f"of those before (`train WORK --minutes M --start WEIGHTS`), SHA-256 {start['sha256']}; those saw "
            f"{start['bank']['settings']:,} settings."
        )
    text = [
        "# The network `general`", "", f"SHA-256 {card['sha256']}.", "", LIMITS, "", about, "",
        "| photograph | author | licence | from |", "| --- | --- | --- | --- |",
        *(f"| {one['file']} | {one['author']} | {one['licence']} | {one['source']} |" for one in photographs),
    ]  # fmt: skip
    (arguments.out / "general.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print(f"{len(photographs)} photographs, {card['sha256']}", flush=True)
