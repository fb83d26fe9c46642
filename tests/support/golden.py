"""The hand-made trace of the golden notebook: every kind of step once, in one session of two runs.

``python tests/support/golden.py`` writes ``data/golden.jsonl`` and ``golden.ipynb`` again.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

from kernel_agent.records.action import Code
from kernel_agent.records.cell import Answer, CellError, CellResult, HostCall, Observation
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import (
    DataFile,
    Record,
    Retry,
    RunStart,
    RunStop,
    Step,
    to_json,
)

DATA = Path(__file__).parent / "data"

PENGUINS = """\
import pandas as pd
df = pd.DataFrame({"species": ["Adelie", "Gentoo"], "mass": [3700.5, 5076.0]})
df"""
TABLE_TEXT = "  species    mass\n0  Adelie  3700.5\n1  Gentoo  5076.0"
TABLE_HTML = """\
<div>
<style scoped>
    .dataframe tbody tr th { vertical-align: top; }
</style>
<table border="1" class="dataframe">
  <thead>
    <tr style="text-align: right;">
      <th></th>
      <th>species</th>
      <th>mass</th>
    </tr>
  </thead>
  <tbody>
    <tr>
      <th>0</th>
      <td>Adelie</td>
      <td>3700.5</td>
    </tr>
    <tr>
      <th>1</th>
      <td>Gentoo</td>
      <td>5076.0</td>
    </tr>
  </tbody>
</table>
</div>"""


def tiny_png() -> str:
    """A 2 x 1 PNG made by hand, so that no library's version is in the golden file."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", 2, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" + b"\xff\0\0" + b"\0\0\xff")
    raw = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )
    return base64.b64encode(raw).decode()


PICTURE = f"""\
import base64
from IPython.display import Image
Image(base64.b64decode("{tiny_png()}"))"""


def stream(text: str, name: str = "stdout") -> dict[str, object]:
    return {"output_type": "stream", "name": name, "text": text}


def step(number: int, action: Code | None, result: CellResult | None, **more: object) -> Step:
    fields: dict[str, object] = {
        "run_id": "one", "number": number, "action": action, "result": result,
        "observation": Observation(text=""), **more,
    }  # fmt: skip
    return Step(**fields)  # type: ignore[arg-type]  # the fields of a test's record


def start(run_id: str, task: str) -> RunStart:
    return RunStart(
        run_id=run_id,
        task=task,
        time="2026-01-02T03:04:05.678+00:00",
        model="some-model",
        format="fenced",
        sandbox={"level": "none"},
        budget={"max_steps": 30},
        data=(
            DataFile(
                path="data/penguins.csv",
                source="/home/someone/penguins.csv",
                bytes=15_245,
                sha256="ab" * 32,
                kind="CSV",
            ),
        ),
        tools=("population", "unused"),
        versions={"python": "3.11.7", "ipykernel": "7.4.0", "pandas": "3.1.1", "numpy": "2.4.6"},
    )


def records() -> tuple[Record, ...]:
    """Success, a failed cell, a timeout, an unreadable reply, a tool, a picture, an answer."""
    zero = CellError(
        ename="ZeroDivisionError",
        evalue="division by zero",
        traceback=(
            "\x1b[31m---------------------------------------------------------------------------",
            "ZeroDivisionError                         Traceback (most recent call last)",
            "Cell In[2], line 2\n      1 ratio = 1\n----> 2 ratio / 0\n",
            "\x1b[31mZeroDivisionError\x1b[39m: division by zero",
        ),
    )
    table = {
        "output_type": "execute_result",
        "execution_count": 1,
        "metadata": {},
        "data": {
            "text/plain": TABLE_TEXT,
            "text/html": TABLE_HTML,
            "application/vnd.kernel-agent.value+json": {"kind": "DataFrame"},
        },
    }
    picture = {
        "output_type": "execute_result",
        "execution_count": 6,
        "metadata": {},
        "data": {
            "image/png": tiny_png() + "\n",
            "text/plain": "<IPython.core.display.Image object>",
        },
    }
    answer = {
        "output_type": "display_data",
        "metadata": {"kernel_agent": {"role": "answer"}},
        "data": {
            "text/plain": "Gentoo is the heaviest",
            "application/vnd.kernel-agent.answer+json": {"kind": "str", "value": "…"},
        },
    }
    later = {
        "output_type": "display_data",
        "metadata": {"kernel_agent": {"role": "answer"}},
        "data": {"text/plain": "2"},
    }
    return (
        start("one", "Which *species* is the heaviest?\nIn <b>grams</b>."),
        step(
            1,
            Code(source=PENGUINS, thought="Look at the table first. Cheap: $0, `df[df.mass < 1]`."),
            CellResult(status="ok", outputs=(table,)),
        ),
        step(
            2,
            Code(source="ratio = 1\nratio / 0", thought="Then a ratio."),
            CellResult(
                status="error",
                error=zero,
                outputs=(
                    {
                        "output_type": "error",
                        "ename": zero.ename,
                        "evalue": zero.evalue,
                        "traceback": list(zero.traceback),
                    },
                ),
            ),
        ),
        step(
            3,
            Code(source="while True:\n    pass", thought="Wait."),
            CellResult(status="timeout", outputs=(stream("waiting\n"),), seconds=30.0),
        ),
        step(4, None, None, retries=(Retry(content="no <script>code</script>", feedback="again"),)),
        step(
            5,
            Code(
                source='print(ratio, population("Torgersen"))\nprint(len(outputs[1]))',
                thought="Ask the host.",
            ),
            CellResult(
                status="ok",
                outputs=(stream("1 42\n"), stream(f"{len(TABLE_TEXT) + 1}\n")),
                calls=(
                    HostCall(
                        name="population",
                        arguments={"args": ["Torgersen"], "kwargs": {}},
                        ok=True,
                        result=42,
                    ),
                ),
            ),
        ),
        step(6, Code(source=PICTURE), CellResult(status="ok", outputs=(picture,))),
        step(
            7,
            Code(source='final_answer("Gentoo is the heaviest")'),
            CellResult(
                status="ok",
                outputs=(answer,),
                answer=Answer(text="Gentoo is the heaviest", value="…", kind="str"),
            ),
        ),
        RunStop(
            run_id="one",
            status=ExitStatus.ANSWERED,
            answer=Answer(text="Gentoo is the heaviest", value="…", kind="str"),
            steps=7,
            seconds=12.5,
            usage=Usage(prompt_tokens=100, completion_tokens=20, calls=8),
        ),
        start("two", "How many rows?"),
        step(
            8,
            Code(source="final_answer(len(df))", thought="# Count\nthem"),
            CellResult(status="ok", outputs=(later,), answer=Answer(text="2", value=2, kind="int")),
            run_id="two",
        ),
        RunStop(
            run_id="two",
            status=ExitStatus.STEP_LIMIT,
            message="the limit of 1 steps was reached",
            partial="1 step ran, 1 without an error.",
            steps=1,
        ),
    )


def main() -> None:
    """Write both files again; look at the difference before committing it."""
    from kernel_agent.notebook.exporter import export

    lines = [json.dumps({"v": 1, **to_json(r)}, ensure_ascii=False) for r in records()]
    (DATA / "golden.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    export(DATA / "golden.jsonl", DATA / "golden.ipynb")


if __name__ == "__main__":
    main()
