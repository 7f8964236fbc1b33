"""An image of two empty layers, the same to the last byte wherever it is made.

Podman restores a container only where it has the image that the container was started from. The folders that such an
image stands for are mounted over its layers instead of being copied into them.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path

NAME = "localhost/cairn:1"

_OCI = "application/vnd.oci.image"
_Descriptor = dict[str, str | int]


def write_image(path: Path) -> None:
    """The image as an archive that `podman load` reads."""
    files: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> _Descriptor:
        name = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{name}"] = content
        return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{name}", "size": len(content)}

    layers = [blob(_folder(name), "layer.v1.tar") for name in ("root", "srv")]
    config = blob(
        _json(
            {
                "created": "1970-01-01T00:00:00Z",
                "architecture": "amd64",
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
            }
        ),
        "config.v1+json",
    )
    manifest = blob(_json({"schemaVersion": 2, "config": config, "layers": layers}), "manifest.v1+json")
    named = {**manifest, "annotations": {"org.opencontainers.image.ref.name": NAME}}
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = _json({"schemaVersion": 2, "manifests": [named]})
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def _folder(name: str) -> bytes:
    """A layer with nothing but one folder, so that no two layers are the same."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
    return packed.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
