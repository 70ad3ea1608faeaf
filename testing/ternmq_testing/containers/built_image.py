"""The image of this checkout."""

import functools
import os
from pathlib import Path
from typing import Final

from testcontainers.core.image import DockerImage

from ternmq_model.errors import UsageError

_TAG: Final = "ternmq:checkout"
_ARGUMENTS: Final = ("BASE", "WHEELS")


@functools.cache
def built_image() -> str:
    """Build the image of the checkout that this package lies in, once for each process.

    As for `docker compose`, the variables `BASE` and `WHEELS` choose the base image and where the
    dependencies come from. Layers that have not changed are not built again.

    Returns:
        The name of the image, which stays.

    Raises:
        UsageError: The package is installed, and lies in no checkout.
    """
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / "Dockerfile").exists():
        raise UsageError("name an image: only a checkout has a Dockerfile to build one from")
    arguments = {name: os.environ[name] for name in _ARGUMENTS if name in os.environ}
    image = DockerImage(checkout, tag=_TAG, clean_up=False, buildargs=arguments)
    image.build()
    image.remove()  # closes the client alone: `clean_up` is off
    return _TAG
