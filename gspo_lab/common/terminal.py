"""Text on a terminal that no data can steer."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.segment import Segment

from gspo_lab.common.text import visible


class VisibleConsole(Console):
    """A console that prints control characters and direction marks as marks (`visible`)."""

    def render_str(self, text: str, **options: Any) -> Any:
        """A text, with its marks counted in its width."""
        return super().render_str(visible(text), **options)

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """The pieces of anything printed; styles are not part of their text."""
        for segment in super().render(*arguments, **options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)
