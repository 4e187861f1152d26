"""What a sweep leaves behind and says: its folder beside other runs, its digest, its arguments, its last line."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from invariance.cli import main
from invariance.process import Job, run_job
from invariance.sweep import campaign, document
from invariance.sweep.api import sweep
from invariance.sweep.campaign import Campaign, Target

FILE = Path(__file__).with_name("candidates.py")
CAST = f"{FILE}:Cast"
BF16 = ("--softcap", 30, "--dtype", "bf16", "--pass", "forward", "--jobs", 1)
FORWARD = Target(30, "bf16", "forward")

GOOD = "def f(x, cap):\n    return cap * (x.float() / cap).tanh()\n"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def digest(spec: str, **more: object) -> str:
    outcome = run_job(Job("invariance.sweep.work:source", {"spec": spec, "device": "cpu", **more}, 60.0))
    assert outcome.kind == "done", outcome.reason
    return str(outcome.value)


@pytest.mark.parametrize(
    "kernel",
    [
        "def f(x, cap):\n    from deep.er.tables import ONE\n    return ONE * x\n",
        "import sys\nsys.path.insert(0, 'deep/er')\nfrom tables import ONE\ndef f(x, cap):\n    return ONE * x\n",
    ],
    ids=["imported when it is called", "off its own path"],
)
def test_the_digest_covers_all_files_that_the_candidate_loads(kernel: str, here: Path) -> None:
    (here / "deep" / "er").mkdir(parents=True)
    (here / "kernel.py").write_text(kernel)
    tables = here / "deep" / "er" / "tables.py"
    found = []
    for text in ("ONE = 1\n", "ONE = 1.5\n"):
        tables.write_text(text)
        found.append(digest("kernel.py:f", caps=(30,), dtypes=("fp32",)))
    assert found[0] != found[1]


def test_the_digest_is_of_this_torch_on_this_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from invariance.sweep import work  # noqa: PLC0415

    own = work.source(CAST, "cpu")
    assert work.source(CAST, "cpu") == own
    monkeypatch.setattr("torch.__version__", "1.0")
    assert work.source(CAST, "cpu") != own


def test_a_failed_run_leaves_no_certificate_of_an_earlier_one(here: Path) -> None:
    kernel = here / "kernel.py"
    kernel.write_text(GOOD)
    asked = ("sweep", "--candidate", "kernel.py:f", *BF16, "--report", "out")
    assert run(*asked) == 0
    assert [path.name for path in Path("out").iterdir()] == ["forward-bf16-30.cert.json"]
    kernel.write_text("def f(x, cap):\n    raise RuntimeError('broken since')\n")
    for more in ((), ("--resume",)):
        assert run(*asked, *more) == 1
        assert list(Path("out").iterdir()) == []


def test_a_refused_pass_leaves_no_certificate_of_an_earlier_run(here: Path) -> None:
    kernel = here / "kernel.py"
    asked = (
        "sweep",
        "--candidate",
        "kernel.py:f",
        *BF16[:4],
        "--jobs",
        1,
        "--pass",
        "both",
        "--report",
        "out",
    )
    kernel.write_text(GOOD)
    assert run(*asked) == 0
    kernel.write_text(GOOD.replace("x.float()", "x.detach().float()"))
    assert run(*asked) == 1
    assert [path.name for path in Path("out").iterdir()] == ["forward-bf16-30.cert.json"]


def test_a_certificate_of_another_candidate_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", "--candidate", CAST, *BF16, "--report", tmp_path) == 0
    path = tmp_path / "forward-bf16-30.cert.json"
    before = path.read_bytes()
    capsys.readouterr()
    assert run("sweep", "--candidate", "native", *BF16, "--report", tmp_path) == 2
    err = capsys.readouterr().err
    assert "candidates.py:Cast, and this run is of native: give each a folder" in err
    assert err.count("\n") == 1
    assert path.read_bytes() == before


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, before: bool) -> None:
    """Another run acts before, or after, this run takes in the result of a piece."""
    real = campaign.run_jobs

    def jobs(asked: object, workers: int) -> Iterator[object]:
        for outcome in real(asked, workers=workers):  # type: ignore[arg-type]  # as given
            if before:
                act()
            yield outcome
            if not before:
                act()

    monkeypatch.setattr(campaign, "run_jobs", jobs)


@pytest.mark.parametrize("before", [True, False])
def test_two_runs_of_two_candidates_at_once_do_not_both_pass_on_one_file(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "forward-bf16-30.cert.json", sweep("native", 30, "bf16", "forward")
    meanwhile(monkeypatch, lambda: document.write(other, path), before=before)
    assert run("sweep", "--candidate", CAST, *BF16, "--report", tmp_path) == 1
    out = capsys.readouterr().out
    assert f"{path} holds a certificate of native and not what this run found" in out
    assert document.read(path) == other


def test_a_certificate_that_another_run_took_away_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "forward-bf16-30.cert.json"
    meanwhile(monkeypatch, path.unlink, before=False)
    assert run("sweep", "--candidate", CAST, *BF16, "--report", tmp_path) == 1
    assert "holds no certificate and not what this run found" in capsys.readouterr().out


def test_a_folder_that_another_run_tidies_up_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other removes `pieces` between the mkdir and the write, twice."""
    real, left = Path.mkdir, [2]

    def mkdir(path: Path, *arguments: object, **more: object) -> None:
        real(path, *arguments, **more)  # type: ignore[arg-type]  # as given
        if left[0] and path.name == campaign.PIECES:
            left[0] -= 1
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert run("sweep", "--candidate", CAST, *BF16, "--report", tmp_path) == 0
    assert left == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["forward-bf16-30.cert.json"]


def test_the_pieces_of_other_runs_stay_and_a_folder_that_is_gone_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = tmp_path / "pieces" / "forward-fp32-20.00000000-01ffffff.0123456789ab.cert.json"
    others.parent.mkdir()
    others.write_text("")
    assert run("sweep", "--candidate", CAST, *BF16, "--report", tmp_path) == 0
    assert others.exists()
    meanwhile(monkeypatch, lambda: shutil.rmtree(others.parent), before=False)
    assert run("sweep", "--candidate", CAST, *BF16, "--report", tmp_path) == 0


def test_an_interrupted_run_keeps_what_resume_needs_also_of_targets_that_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, asked = campaign.run_jobs, ("sweep", "--candidate", CAST, *BF16, "--report", tmp_path)

    def interrupted(jobs: object, workers: int) -> Iterator[object]:
        yield next(iter(real(jobs, workers=workers)))  # type: ignore[arg-type]  # as given
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run_jobs", interrupted)
    assert run(*asked) == 130
    assert f"--resume goes on from the pieces in {tmp_path}" in capsys.readouterr().err
    monkeypatch.setattr(campaign, "run_jobs", lambda jobs, workers: no_more(jobs))
    assert run(*asked, "--resume") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["forward-bf16-30.cert.json"]


def no_more(jobs: Iterator[Job]) -> list[object]:
    """All that there is to do is there already."""
    assert list(jobs) == []
    return []


def test_an_interrupt_without_pieces_promises_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(jobs: object, workers: int) -> Iterator[object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run_jobs", interrupted)
    assert run("sweep", "--candidate", CAST, *BF16, "--report", tmp_path) == 130
    assert capsys.readouterr().err == "\nsoftcap-verify: interrupted\n"


def test_a_candidate_that_cannot_be_loaded_leaves_no_folder(here: Path) -> None:
    assert run("sweep", "--candidate", "nope.py:X", *BF16, "--report", "a/b") == 2
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--candidate", "A", "--candidate", "B"], "--candidate 'A' and 'B': this command takes one"),
        (["--shard", "1/2", "--shard", "2/2"], "--shard '1/2' and '2/2': this command takes one"),
        (["--pass", "forward", "--pass", "backward"], "--pass 'forward' and 'backward'"),
        (["--report", ""], "--report '' is no path"),
        (["--softcap", "30_0"], "--softcap '30_0' is not a cap"),
        (["--softcap", "٣٠"], "--softcap '٣٠' is not a cap"),
        (["--softcap", " 30"], "--softcap ' 30' is not a cap"),
        (["--softcap", "inf"], "--softcap 'inf' is not a cap"),
        (["--softcap", "9" * 44], "is not a cap"),
        (["--softcap", "9" * 400], "(400 characters) is not a cap"),
        (["--softcap", "9" * 5000], "(5,000 characters) is not a cap"),
        (["--shard", "1/" + "9" * 5000], "(5,002 characters) is not K/N"),
        (["--jobs", "9" * 5000], "(5,000 characters) is too large"),
        (["--timeout", "1_0"], "--timeout '1_0' is not"),
    ],
)
def test_what_is_given_twice_or_misspelled_is_refused_in_one_short_line(
    arguments: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", "--dtype", "fp16", *arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert (err.count("\n"), len(err) < 250) == (1, True)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "cap"),
    [("30", 30), ("+30.", 30.0), (".5", 0.5), ("3e1", 30.0), ("0x1.ep+4", 30.0), ("0X1E", 30.0)],
)
def test_spellings_of_a_cap(text: str, cap: float) -> None:
    from invariance.usage import read_cap  # noqa: PLC0415

    found = read_cap(text)
    assert (found, type(found)) == (cap, type(cap))


def test_a_configured_instance_is_swept_at_its_own_cap_and_says_so(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "import torch\nclass K:\n    softcap = 17.5\n    def __call__(self, x):\n"
    (here / "own.py").write_text(f"{own}        return 17.5 * torch.tanh(x.float() / 17.5)\nop = K()\n")
    common = ("sweep", "--candidate", "own.py:op", *BF16[2:])
    assert run(*common, "--softcap", 20, 17.5, 30) == 0
    printed = capsys.readouterr()
    said = "softcap-verify: own.py:op carries its own cap 17.5: swept at that, not at 20, 30\n"
    assert printed.err == said
    assert "cap 17.5: 65,536 inputs" in printed.out


def test_the_last_line_says_what_was_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sweep", "--candidate", f"{FILE}:Wrong", *BF16[2:], "--softcap", "1e-30") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    said = "not judged, whatever they show: cap 1e-30 (judged are 2^-60 to 2^60)"
    assert last == f"NOTHING was judged; {said}"
    with pytest.raises(SystemExit):
        run("sweep", "--help")
    assert "judged from 2^-60 to 2^60" in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_the_last_line_names_what_only_check_judges(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_ulp_up = "import torch\n\nclass Up:\n    def __init__(self, softcap):\n        self.cap = softcap\n"
    one_ulp_up += "    def __call__(self, x):\n        y = self.cap * (x.float() / self.cap).tanh()\n"
    one_ulp_up += "        return torch.where(x == 3.0, torch.nextafter(y, y + 1), y)\n"
    (here / "up.py").write_text(one_ulp_up)
    assert run("sweep", "--candidate", "up.py:Up", *BF16) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "PASS: 1 by the accuracy rules; but oddness breaks 1: `check` judges that"


def test_an_early_interrupt_ends_in_one_line() -> None:
    """A signal at various moments of the start; before Python runs the command's first line nothing can catch it."""
    # A shell's background is deaf to it.
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = heard + "import os, invariance.__main__ as m\n{}\nraise SystemExit(m.main())"
    kill = "os.kill(os.getpid(), signal.SIGINT)"
    within = f"import importlib\nreal = importlib.import_module\nimportlib.import_module = lambda n: {kill} or real(n)"
    at_import = (
        f"{heard}import builtins, os\nreal = builtins.__import__\n"
        f"def f(name, *a, **k):\n    if name == 'invariance.cli': {kill}\n    return real(name, *a, **k)\n"
        "builtins.__import__ = f\nimport invariance.__main__"
    )
    for program in (code.format(within), at_import):
        done = subprocess.run(
            [sys.executable, "-c", program, "sweep", "--candidate", CAST],
            capture_output=True,
            text=True,
            check=False,
            cwd=FILE.parents[2],
        )
        assert (done.returncode, done.stderr) == (130, "softcap-verify: interrupted\n")


def test_the_state_of_a_campaign_without_a_report() -> None:
    assert not Campaign(CAST, CAST, (FORWARD,)).left_behind()
