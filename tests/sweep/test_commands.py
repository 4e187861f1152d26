"""The commands sweep, merge and compare, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from invariance.candidate import load
from invariance.cli import main
from invariance.sweep import campaign, document, work
from invariance.sweep.api import certify_16bit, sweep

FILE = Path(__file__).with_name("candidates.py")
CAST = f"{FILE}:Cast"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_a_sweep_writes_a_certificate_for_each_cap_dtype_and_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(
        "sweep",
        "--candidate",
        CAST,
        "--softcap",
        30,
        "--dtype",
        "bf16",
        "fp16",
        "--jobs",
        1,
        "--report",
        tmp_path,
    )
    assert status == 0
    names = {
        f"{pass_}-{dtype}-30.cert.json" for pass_ in ("forward", "backward") for dtype in ("fp16", "bf16")
    }
    assert {path.name for path in tmp_path.iterdir()} == names
    found = document.read(tmp_path / "forward-bf16-30.cert.json")
    assert found.complete
    assert found == sweep(CAST, 30, "bf16", "forward") == certify_16bit(load(CAST), 30, "bf16", "forward")
    out = capsys.readouterr().out
    assert out.count("PASS") == 4 + 1  # and the last line
    assert "65,536 inputs" in out
    assert str(tmp_path) not in (tmp_path / "forward-bf16-30.cert.json").read_text()


def test_a_wrong_input_fails_and_is_named_and_the_certificate_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--softcap", 30, "--dtype", "fp16", "--pass", "forward", "--jobs", 1, "--report", tmp_path)
    assert run("sweep", "--candidate", f"{FILE}:Wrong", *arguments) == 1
    data = json.loads((tmp_path / "forward-fp16-30.cert.json").read_text())
    assert data["counts"]["violations"] == {
        "count": 1,
        "first": [{"decimal": "3.0", "hex": "0x1.8000000000000p+1", "bits": "0x4200"}],
    }
    assert "RULES   broken by 1 inputs, first x = 3.0 (0x4200)" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "said"), [("Raises", "no BF16 here"), ("Dies", "exited with status 3")])
def test_a_candidate_that_fails_is_reported_with_the_range(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "--softcap",
        30,
        "--dtype",
        "fp16",
        "bf16",
        "--pass",
        "forward",
        "--jobs",
        1,
        "--report",
        tmp_path,
    )
    assert run("sweep", "--candidate", f"{FILE}:{name}", *arguments) == 1
    out = capsys.readouterr().out
    assert "magnitudes 0x0 to 0x7fff" in out
    assert said in out
    assert [path.name for path in tmp_path.iterdir()] == ["forward-fp16-30.cert.json"]


def test_a_candidate_without_a_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    spec = f"{FILE}:no_gradient"
    refused = "no_gradient · backward fp16 cap 30: the candidate has no gradient (asked of four elements)"
    common = ("--softcap", 30, "--dtype", "fp16", "--jobs", 1)
    assert run("sweep", "--candidate", spec, *common) == 0
    assert "no gradient" in capsys.readouterr().err
    for asked, passed in (("both", 1), ("backward", 0)):
        capsys.readouterr()
        assert run("sweep", "--candidate", spec, *common, "--pass", asked) == 1
        out = capsys.readouterr().out
        assert refused in out
        assert (out.count("PASS"), out.count("FAIL")) == (passed, 1 + 1)  # and the last line


def interrupt_after_one_piece(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first outcome of all runs from here on is followed by Ctrl-C; gives back where the outcomes seen begin."""
    real, seen = campaign.run_jobs, []

    def interrupted(jobs: object, workers: int) -> object:
        for outcome in real(jobs, workers=workers):  # type: ignore[arg-type]  # as given
            seen.append(outcome.job.kwargs["lo"])
            yield outcome
            if len(seen) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run_jobs", interrupted)
    return seen


def test_an_interrupted_sweep_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two shards of one 2**20 range each stand for pieces; the second is interrupted."""
    monkeypatch.setitem(campaign.PIECE, "cpu", 1 << 20)
    arguments = [
        "sweep",
        "--candidate",
        "native-fp32",
        "--softcap",
        30,
        "--dtype",
        "fp32",
        "--pass",
        "forward",
    ]
    arguments += ["--shard", "300/1024", "--report", tmp_path, "--jobs", 1]
    seen = interrupt_after_one_piece(monkeypatch)
    assert run(*arguments) == 130
    assert len(list((tmp_path / "pieces").iterdir())) == 1
    assert run(*arguments, "--resume") == 0
    assert len(seen) == 2
    assert seen[0] != seen[1]
    assert [path.name for path in tmp_path.iterdir()] == ["forward-fp32-30.300of1024.cert.json"]
    whole = sweep("native-fp32", 30, "fp32", "forward", shard=(300, 1024))
    assert (tmp_path / "forward-fp32-30.300of1024.cert.json").read_text() == document.dumps(whole)


def test_an_interrupt_still_shows_what_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = campaign.run_jobs

    def interrupted(jobs: object, workers: int) -> object:
        yield next(iter(real(jobs, workers=workers)))  # type: ignore[arg-type]  # as given
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run_jobs", interrupted)
    assert run("sweep", "--candidate", CAST, "--softcap", 30, "--dtype", "fp16", "--jobs", 1) == 130
    printed = capsys.readouterr()
    assert "candidates.py:Cast · forward fp16" in printed.out
    assert (printed.out.count("PASS"), printed.out.count("nothing")) == (1, 0)
    assert printed.err == "\nsoftcap-verify: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shard", "3/2"], "--shard '3/2'"),
        (["--shard", "x"], "--shard 'x'"),
        (["--pass", "sideways"], "--pass 'sideways'"),
        (["--resume"], "--resume needs"),
        (["--dtype", "fp8"], "--dtype 'fp8'"),
        (["--softcap", "-1"], "--softcap"),
        (["--device", "cuda:9"], "--device"),
        (["--candidate", "nowhere.at:all"], "nowhere"),
        (["--jobs", "0"], "--jobs '0'"),
        (["--report", str(FILE), "--candidate", "nowhere.at:all"], "is a file, not a folder"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", "--dtype", "fp16", *arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_shards_merge_to_the_whole_and_gaps_and_overlaps_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = sweep(CAST, 30, "fp16", "forward")
    document.write(whole, tmp_path / "whole.cert.json")
    assert run("merge", tmp_path / "whole.cert.json", "-o", tmp_path / "out") == 0
    assert (tmp_path / "out" / "forward-fp16-30.cert.json").read_text() == document.dumps(whole)
    assert run("merge", tmp_path / "whole.cert.json", tmp_path / "whole.cert.json", "-o", tmp_path) == 2
    assert "covered twice" in capsys.readouterr().err
    document.write(
        sweep("native-fp32", 30, "fp32", "forward", shard=(1024, 1024)), tmp_path / "part.cert.json"
    )
    assert run("merge", tmp_path / "part.cert.json", "-o", tmp_path / "left") == 2
    assert "are in none of" in capsys.readouterr().err
    assert not (tmp_path / "left").exists()
    assert run("merge", FILE, "-o", tmp_path) == 2


def test_a_folder_stands_for_its_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards, empty = tmp_path / "shards", tmp_path / "empty"
    for dtype in ("fp16", "bf16"):
        document.write(sweep(CAST, 30, dtype, "forward"), shards / f"{dtype}.cert.json")
    (shards / "notes.txt").write_text("no certificate")
    empty.mkdir()
    assert run("merge", shards, "-o", tmp_path / "out") == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "forward-bf16-30.cert.json",
        "forward-fp16-30.cert.json",
    }
    capsys.readouterr()
    assert run("merge", empty, "-o", tmp_path / "out") == 2
    assert capsys.readouterr().err == f"softcap-verify: {empty} holds no *.cert.json file\n"
    assert run("compare", shards, shards) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"softcap-verify: {shards} is a folder: compare takes two certificates")
    assert err.count("\n") == 1


def test_a_file_given_twice_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "whole.cert.json"
    document.write(sweep(CAST, 30, "fp16", "forward"), path)
    assert run("merge", path, path, "-o", tmp_path / "out") == 2
    err = capsys.readouterr().err
    assert err.endswith(f"are covered twice (in {path})\n")
    assert err.count(str(path)) == 1


def test_a_device_that_is_none_is_refused_even_for_the_same_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "whole.cert.json"
    document.write(sweep(CAST, 30, "fp16", "forward"), path)
    assert run("compare", path, path, "--device", "tpu") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("softcap-verify: --device 'tpu' is not one of")


def test_compare_says_same_different_or_not_comparable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {}
    for name, spec, pass_ in (
        ("a", CAST, "forward"),
        ("b", f"{FILE}:Wrong", "forward"),
        ("c", CAST, "backward"),
    ):
        paths[name] = tmp_path / f"{name}.json"
        document.write(sweep(spec, 30, "fp16", pass_), paths[name])
    assert run("compare", paths["a"], paths["a"]) == 0
    assert run("compare", paths["a"], paths["c"]) == 2
    capsys.readouterr()
    assert run("compare", paths["a"], paths["b"], "--candidate", CAST, f"{FILE}:Wrong") == 1
    out = capsys.readouterr().out
    assert "magnitudes 0x00000000 to 0x00007fff" in out
    assert "x = 3.0 (0x4200)" in out
    assert run("compare", paths["a"], FILE) == 2


def test_another_output_dtype_is_another_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for spec in ("native-fp32", CAST):
        document.write(sweep(spec, 30, "fp16", "forward"), tmp_path / f"{spec.rpartition(':')[2]}.json")
    a, b = tmp_path / "native-fp32.json", tmp_path / "Cast.json"
    assert run("compare", a, b) == 1
    assert capsys.readouterr().out == "DIFFERENT: every result, for the output dtypes are fp32 and fp16\n"
    document.write(sweep(f"{FILE}:Wrong", 30, "fp16", "forward"), a)
    assert run("compare", a, b, "--candidate", "native-fp32", CAST) == 1
    assert "native-fp32 returned fp32 here, and fp16 where it was certified" in capsys.readouterr().out


def test_a_folder_that_cannot_be_one_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    assert run("merge", tmp_path / "absent.cert.json", "-o", tmp_path / "taken") == 2
    assert capsys.readouterr().err == f"softcap-verify: -o {tmp_path / 'taken'} is a file, not a folder\n"


def test_parts_of_two_functions_are_not_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, spec in (("a", "native"), ("b", "native-fp32")):
        document.write(sweep(spec, 30, "bf16", "forward"), tmp_path / name)
    assert run("merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path) == 2
    said = "are parts of two functions, forward-bf16-30 both: candidate native and native-fp32"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_16_bit_domain_is_one_piece_in_the_last_shard_and_merges_to_the_single_run(
    dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--candidate", "native", "--softcap", 30, "--dtype", dtype, "--jobs", 1)
    for number in range(1, 4):
        assert run("sweep", *common, "--shard", f"{number}/3", "--report", tmp_path / "shards") == 0
    out = capsys.readouterr().out
    assert out.count("cap 30: a 16-bit domain is one piece, in shard 3/3") == 4
    assert run("merge", *(tmp_path / "shards").iterdir(), "-o", tmp_path / "merged") == 0
    assert run("sweep", *common, "--report", tmp_path / "single") == 0
    for path in (tmp_path / "single").iterdir():
        assert (tmp_path / "merged" / path.name).read_bytes() == path.read_bytes()


def test_after_a_piece_that_failed_the_others_of_its_kind_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four pieces of 2**20 magnitudes; the third holds the input at which the candidate gives up."""
    monkeypatch.setitem(campaign.PIECE, "cpu", 1 << 20)
    asked = ("--candidate", f"{FILE}:GivesUp", "--softcap", 30, "--dtype", "fp32", "--pass", "forward")
    assert run("sweep", *asked, "--shard", "261/512", "--jobs", 1, "--report", tmp_path) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "FAIL: 1 of 1 failed"
    assert [line.partition("cap 30: ")[2] for line in lines] == [
        "magnitudes 0x41200000 to 0x412fffff: ArithmeticError: eleven (candidates.py:50)",
        "pieces that were not tried: 1",
    ]


def test_the_pieces_of_another_source_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate's neighbour changes between the interrupt and --resume: no certificate of two kernels."""
    monkeypatch.setitem(campaign.PIECE, "cpu", 1 << 20)
    monkeypatch.chdir(tmp_path)
    kernel = "from constants import ONE\ndef f(x, cap):\n    return ONE * (cap * (x.float() / cap).tanh())\n"
    (tmp_path / "kernel.py").write_text(kernel)
    (tmp_path / "constants.py").write_text("ONE = 1\n")
    asked = (
        "sweep",
        "--candidate",
        "kernel.py:f",
        "--softcap",
        30,
        "--dtype",
        "fp32",
        "--pass",
        "forward",
        "--jobs",
        1,
    )
    asked += ("--shard", "300/1024", "--report", "out")
    seen = interrupt_after_one_piece(monkeypatch)
    assert run(*asked) == 130
    assert len(list(Path("out/pieces").iterdir())) == 1
    (tmp_path / "constants.py").write_text("ONE = 1.5\n")
    assert run(*asked, "--resume") == 1
    assert seen == [seen[0], seen[0], seen[0] + (1 << 20)]
    assert [path.name for path in Path("out").iterdir()] == ["forward-fp32-30.300of1024.cert.json"]


def test_an_interpreted_kernel_has_the_source_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    own = work.source(CAST, "cpu")
    monkeypatch.setattr(work, "_loaded", lambda *_: None)  # it has no Triton kernel
    assert work.source(f"interpreted:{CAST}", "cpu") == own != work.source("native", "cpu")


def test_an_interpreted_kernel_is_not_swept_and_the_line_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", "--candidate", "triton-interpreted", "--dtype", "bf16", "--report", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "accuracy is not judged in the interpreter" in said
    assert "`check` judges its other laws" in said
    assert not (tmp_path / "out").exists()
