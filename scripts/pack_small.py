"""Put trained networks into the package: their folders, and the card that pins every file.

    python scripts/pack_small.py TRAINED --name NAME [--into FOLDER]

TRAINED has one folder for each direction, named like `en-es`, as `training/translation` writes
them. After this: `lingua bench translation --write`, so that the router knows what they are worth.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import sys
from pathlib import Path

OWN = Path(__file__).parents[1] / "packages/speech/src/lingua_speech/engines/small/weights"
FILES = (
    "model.bin", "config.json", "source.spm", "target.spm", "source_vocabulary.json",
    "target_vocabulary.json",
)  # fmt: skip
LICENCE = "CC-BY-2.0-FR AND MPL-2.0"
CREDIT = (
    "Trained by this project on sentences of Tatoeba (tatoeba.org, CC-BY 2.0 FR, by its"
    " contributors), starting from Mozilla's Firefox Translations models (MPL-2.0)"
)
DIRECTION = re.compile(r"[a-z]{2,3}-[a-z]{2,3}")


def main() -> int:
    """Copy, hash and write the card."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trained", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--into", type=Path, default=OWN)
    args = parser.parse_args()
    folders = sorted(path for path in args.trained.iterdir() if DIRECTION.fullmatch(path.name))
    if not folders:
        print(f"{args.trained} has no folder like en-es", file=sys.stderr)
        return 1
    shutil.rmtree(args.into, ignore_errors=True)
    args.into.mkdir(parents=True)
    sections = [pack(folder, args.into / folder.name) for folder in folders]
    if (args.trained / "MODEL_CARD.md").is_file():
        shutil.copyfile(args.trained / "MODEL_CARD.md", args.into / "MODEL_CARD.md")
    head = [f'name = "{args.name}"', f'licence = "{LICENCE}"', f'credit = "{CREDIT}"']
    (args.into / "card.toml").write_text("\n".join([*head, "", *sections]), encoding="utf-8")
    print(f"{', '.join(folder.name for folder in folders)} in {args.into}")
    return 0


def pack(folder: Path, into: Path) -> str:
    """Copy one network; return its part of the card."""
    into.mkdir()
    lines = [f"[folders.{folder.name}]", f'pairs = ["{folder.name}"]', ""]
    lines.append(f"[folders.{folder.name}.sha256]")
    for name in FILES:
        shutil.copyfile(folder / name, into / name)
        digest = hashlib.sha256((into / name).read_bytes()).hexdigest()
        lines.append(f'"{name}" = "{digest}"')
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
