from tasks.params.schema import Params
from tasks.promotion.expected_exam import expected_exam


def params(**prompts):
    return Params.read({"prompts": prompts}, where="")


def test_the_rows_of_a_file_are_counted(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"why {number}?\n" for number in range(50)))

    found = expected_exam(params(source="file", path=str(path)))

    assert found is not None
    assert 15 == found.num_test
    hub = {"dataset": "a/b", "revision": "0" * 40}
    assert expected_exam(params(source="hub", **hub)) is None
