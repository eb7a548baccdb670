from tasks.machine.tables import markdown


def test_a_table_has_a_header_a_rule_and_its_rows():
    assert "| a | b |\n|---|---|\n| 1 |  |" == markdown(("a", "b"), [("1", "")])
