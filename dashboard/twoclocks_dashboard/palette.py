"""Two palettes of the charts, light and dark, with the same hues in both.

Blue is progress, vermilion is failure, teal is held out: they differ in lightness too, so that they are
told apart without colour vision, and no colour is ever the only sign (lines, dashes and symbols differ as
well). The style sheet uses the same values.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours as CSS; `*_soft` are fills that lie under lines."""

    ink: str
    muted: str
    grid: str
    panel: str
    progress: str
    held_out: str
    failure: str
    failure_soft: str
    failure_faint: str
    guess: str
    guess_soft: str
    switch: str


LIGHT = Palette(
    ink="#1f2430",
    muted="#667080",
    grid="rgba(90,100,120,0.14)",
    panel="#ffffff",
    progress="#1d6fb8",
    held_out="#0b8a78",
    failure="#c4481a",
    failure_soft="rgba(214,92,34,0.20)",
    failure_faint="rgba(214,92,34,0.09)",
    guess="#8a6d1f",
    guess_soft="rgba(170,140,50,0.14)",
    switch="#6b4fa3",
)
DARK = Palette(
    ink="#e9e6df",
    muted="#98a1b2",
    grid="rgba(160,170,190,0.14)",
    panel="#191d26",
    progress="#6db3f0",
    held_out="#58cdb8",
    failure="#f58a52",
    failure_soft="rgba(245,138,82,0.17)",
    failure_faint="rgba(245,138,82,0.07)",
    guess="#d8bd66",
    guess_soft="rgba(216,189,102,0.15)",
    switch="#b79bf0",
)


def palette(theme: str) -> Palette:
    """The palette of a theme's name; anything but "dark" is light."""
    return DARK if theme == "dark" else LIGHT
