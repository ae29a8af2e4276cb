"""Where the worker process finds secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.worker import SecretUnavailable
from tidewheel_services.worker.secrets import LocalSecrets


def test_the_environment_goes_before_files(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("from-file\n")
    (tmp_path / "api.key").write_text("key-in-file")
    secrets = LocalSecrets({"TIDEWHEEL_SECRETS_DIR": str(tmp_path), "TIDEWHEEL_SECRET_DB": "from-env"})
    assert secrets.resolve("db") == "from-env"
    assert secrets.resolve("api.key") == "key-in-file"
    assert secrets.masker.mask("from-env key-in-file") == "*** ***"


def test_a_rotated_file_needs_no_restart_and_both_values_are_masked(tmp_path: Path) -> None:
    secrets = LocalSecrets({"TIDEWHEEL_SECRETS_DIR": str(tmp_path)})
    (tmp_path / "db").write_text("old-value\n")
    assert secrets.resolve("db") == "old-value"
    (tmp_path / "db").write_text("new-value\r\n")
    assert secrets.resolve("db") == "new-value"
    assert secrets.masker.mask("old-value new-value") == "*** ***"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone", "secret 'gone' is missing on this worker: neither TIDEWHEEL_SECRET_GONE nor a file"),
        ("../etc/passwd", "is no name of a secret"),
        ("short", "secret 'short' has 3 characters; one shorter than 4 cannot be masked"),
        ("binary", "secret 'binary' cannot be read"),
        ("directory", "secret 'directory' cannot be read"),
    ],
)
def test_what_cannot_be_a_secret_is_refused_without_its_value(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "short").write_text("abc")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "directory").mkdir()
    with pytest.raises(SecretUnavailable) as caught:
        LocalSecrets({"TIDEWHEEL_SECRETS_DIR": str(tmp_path)}).resolve(name)
    assert words in str(caught.value)
    assert "abc" not in str(caught.value)
