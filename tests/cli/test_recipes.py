import json

from megalabel.__main__ import main
from megalabel.recipes import list_recipes


def test_table_has_a_line_for_every_recipe(capsys):
    assert main(["recipes", "--table"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["recipe", "encoder", "heads"]
    assert [line.split()[0] for line in lines] == list_recipes()
    line = next(line for line in lines if line.startswith("unidec "))
    assert all(word in line for word in ("transformer", "text + free", "576", "clustered", "6 mined", "150"))
    assert all(line == line.rstrip() for line in lines)


def test_json_and_table_are_one_too_many(capsys):
    assert main(["recipes", "--json", "--table"]) == 2
    assert capsys.readouterr().err == "megalabel: --json and --table are two ways to print the same; choose one\n"
    assert main(["recipes", "--json"]) == 0
    assert {"name", "paper", "about", "differs", "published"} <= set(json.loads(capsys.readouterr().out)[0])
