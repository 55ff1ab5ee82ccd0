"""The one reader of final answers, held against pairs graded by hand.

The pairs come from what models write and from math-verify's issues 10, 14, 37, 41, 60 and 64.
"""

from fractions import Fraction

import pytest

from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.benchmarks.aime import Aime24
from gspo_lab.tasks.benchmarks.final_answers import NoAnswer, last_box, read_number
from gspo_lab.tasks.benchmarks.gsm8k import Gsm8k

NUMBERS = r"""
€18 | 18
£18 | 18
\pounds 18 | 18
₹1,800 | 1800
US$18.50 | 37/2
USD 18 | 18
18 USD | 18
18 \text{ cm}^3 | 18
18\,\mathrm{km}^{2} | 18
18 m²/s | 18
25² | -
18 \text{ m}/\text{s} | 18
18 \text{ (eggs)} | 18
25\text{ sq. units} | 25
18 children's books | 18
18 miles per hour | 18
18th | 18
70 000 | 70000
70\,000 | 70000
70,000 people | 70000
1 234 567.5 | 2469135/2
70 00 | -
7 0 | -
1,234,56 | -
70 \text{ thousand} | 70000
3 \text{ dozen} | 36
2.5 million dollars | 2500000
70k | 70000
\underline{18} | 18
\textit{18} | 18
\texttt{25} | 25
\pmb{25} | 25
\mathbf 25 | 25
{\bf 25} | 25
\boxed{\textbf{25}} | 25
(25) | 25
\left(25\right) | 25
**25** | 25
N \equiv 25 \pmod{1000} | 25
N \equiv 25 (mod 1000) | 25
m+n \Rightarrow 25 | 25
x = 5 \implies x^2 = 25 | -
\text{Answer: } 25 | 25
\text{The answer is } 25 | 25
The answer is not 25 | -
25°C | 25
25^{\text{th}} | 25
25ᵗʰ | 25
25^{-1} | -
\begin{aligned} x &= 25 \end{aligned} | 25
\hspace{1cm}25 \\ | 25
\phantom{0}25 | 25
"25" | 25
*25* | 25
\#25 | 25
S \equiv 1025 \equiv 25 \pmod{1000} | 25
1'080 | 1080
1'08 | -
1,\!080 | 1080
1\!,080 | 1080
\textdollar 18 | 18
CHF 18 | 18
18 \frac{\text{km}}{\text{h}} | 18
18 \text{ km}\cdot\text{h}^{-1} | 18
答案：18元 | 18
18 个 | 18
18万 | -
18或19 | -
9 × 2 = 36 ÷ 2 = 18 | 18
8 × 2 = 18 | -
\fcolorbox{yellow}{25} | 25
\therefore 25 \checkmark | 25
x \therefore 25 | -
5 + 3 = 8 dollars | 8
\$5 \times 216 = \$1080 | 1080
10*80 | -
5 = 1080 | -
25i | -
25x | -
25 n | -
25 and a half | -
25 or more | -
25! | -
[25] | -
\{25\} | -
5^2 | -
. | -
"""
"""A box and the number that it states; -: none."""
ROWS = [tuple(row.split(" | ")) for row in NUMBERS.strip().splitlines()]
ROWS += [
    ("\u200b25", "25"),
    ("\u202a25\u202c", "25"),
    ("25\xa0cm", "25"),
    ("", "-"),
    ("9" * 201, "-"),
]


@pytest.mark.parametrize(("content", "value"), ROWS)
def test_the_number_that_a_box_states(content: str, value: str) -> None:
    number = read_number(content)
    assert (None if number is None else number.value) == (None if value == "-" else Fraction(value))


@pytest.mark.parametrize("number", [0, 1, 7, 10, 99, 100, 999])
def test_every_form_of_a_number_reads_as_it(number: int) -> None:
    for form in ("{:03d}", "{}.", "{}.00", "x={}", r"\text{{{}}}", "${}$", "({})", r"\pmb{{{}}}"):
        read = read_number(form.format(number))
        assert read is not None
        assert read.value == number


ORDINARY = r"x = 1,080|$12.50|\$1,080 \text{ dollars}.|0.5|18 million|18k|18 or|1,08|18 eggs"


@pytest.mark.parametrize("content", ORDINARY.split("|"))
def test_the_short_way_reads_what_the_rules_read(content: str) -> None:
    assert read_number(content) == read_number(f"{{{content}}}")


PLACEHOLDERS = [
    "...",
    r"\ldots",
    r"\dots",
    "…",
    "?",
    "answer",
    r"\text{your answer}",
    r"\quad",
    "_",
]


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_a_box_without_an_answer_is_passed_over(placeholder: str) -> None:
    text = rf"So \boxed{{25}}. I wrote it as \boxed{{{placeholder}}}."
    assert last_box(text) == "25"
    for task in (Aime24(), Gsm8k()):
        assert task.grade(Problem("x", "?", "25"), text).correct is True
    with pytest.raises(NoAnswer, match="no complete box"):
        last_box(rf"\boxed{{{placeholder}}}")


@pytest.mark.parametrize(
    "answer",
    [
        r"<think>so \boxed{25}</think> It is unclear.",
        r"[THINK]so \boxed{25}[/THINK] It is unclear.",
        r"<|begin_of_thought|>so \boxed{25}",
        r"so \boxed{25}</think> It is unclear.",
        r"<|channel|>analysisso \boxed{25}assistant<|channel|>finalIt is unclear.",
    ],
)
def test_a_box_within_the_thinking_is_no_answer(answer: str) -> None:
    assert Aime24().grade(Problem("x", "?", "25"), answer).correct is False
