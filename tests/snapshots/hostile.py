"""Takes the browser's place in a container, with its rights: runs whatever code it is sent, says what came of it."""

import json
import os
from typing import Any


def main() -> None:
    heard = b""
    while chunk := os.read(3, 65536):
        heard += chunk
        while b"\0" in heard:
            code, _, heard = heard.partition(b"\0")
            scope: dict[str, Any] = {"said": None}
            try:
                exec(code, scope)  # which is what the test wants
                said = scope["said"]
            except Exception as error:  # noqa: BLE001 - the test is told of any
                said = f"{type(error).__name__}: {error}"
            os.write(4, json.dumps(said).encode() + b"\0")


if __name__ == "__main__":
    main()
