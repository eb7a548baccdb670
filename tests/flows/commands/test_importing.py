from flows.cli import run_command


def test_a_file_that_is_no_gguf_is_one_line(restored, tmp_path, capsys):
    (tmp_path / "it.gguf").write_bytes(b"PK")

    assert 2 == run_command(["import", str(tmp_path / "it.gguf")])
    told = capsys.readouterr().err
    assert told.startswith("error: a model to import must be a GGUF file, got another kind of file")
