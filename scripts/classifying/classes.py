"""The classes of an image run, and whether a run has them."""

from __future__ import annotations

from towers.scripts.training.session import Session


def check_images(session: Session, what: str) -> None:
    """Raises ValueError unless the session's recipe takes images.

    Args:
        session: of a run.
        what: needs images, such as `towers predict`.
    """
    if not hasattr(session.data.test.source, "pixels_of"):
        raise ValueError(
            f"{what} needs a run with images. Received a run of {session.recipe.name}, which "
            f"speaks with `towers {session.recipe.command}`."
        )


def check_one_label(session: Session) -> None:
    """Raises ValueError if an image of the session may have several labels."""
    if getattr(session.recipe.fields, "multi_label", False):
        raise ValueError(
            "--classes counts which class was taken for which. Received a run with "
            "multi_label=true, whose pictures have several; leave --classes out."
        )


def class_names(session: Session) -> tuple[str, ...]:
    """Returns the names of the classes, in the order of the labels."""
    about = session.data.about or {}
    if "classes" in about:
        return tuple(about["classes"])
    return session.data.test.source.image_set.class_names
