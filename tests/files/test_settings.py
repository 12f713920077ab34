"""Settings from TOML files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from defocus.errors import ConfigError
from defocus.files.settings import read_toml, validated


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    batch: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    steps: int = 1
    data: Inner = Inner()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stepps": 3}, "unknown key 'stepps': did you mean 'steps'"),
        ({"batch": 3}, "unknown key 'batch': did you mean data.batch"),
        ({"data": {"zzz": 3}}, "unknown key 'data.zzz': known are batch"),
        ({"steps": "many"}, "steps: .*'many'"),
        ({"steps": 1e30}, r"steps: a number far too large \(it is 1e\+30\)"),
    ],
)
def test_wrong_keys_are_named_with_the_nearest(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^a.toml: {message}"):
        validated(Outer, values, ConfigError, "a.toml")


@pytest.mark.parametrize("text", [b"", b"a = \xff", b"a = ", b"a = " + b"[" * 5000])
def test_files_that_are_no_toml_are_named(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=r"a\.toml: "):
        read_toml(tmp_path / "a.toml", ConfigError)
    with pytest.raises(ConfigError, match=r"b\.toml: cannot be read"):
        read_toml(tmp_path / "b.toml", ConfigError)


def test_what_has_no_end_is_no_file_of_settings() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("there is no /dev/zero")
    with pytest.raises(ConfigError, match="/dev/zero: no settings: more than 16 MiB"):
        read_toml("/dev/zero", ConfigError)
