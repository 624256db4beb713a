import json

from megalabel.recipes import list_recipes


def test_table_has_a_line_for_every_recipe(call):
    code, out, _ = call("recipes", "--table")
    assert code == 0
    head, *lines = out.splitlines()
    assert head.split()[:4] == ["recipe", "stage", "encoder", "heads"]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list_recipes()
    line = next(line for line in lines if line.startswith("unidec "))
    assert all(word in line for word in ("transformer", "text + free", "576", "clustered", "6 mined", "150"))
    assert all(line == line.rstrip() for line in lines)


def test_json_or_table(call):
    assert call("recipes", "--json", "--table")[::2] == (
        2,
        "megalabel: --json and --table exclude each other; choose one\n",
    )
    code, out, _ = call("recipes", "--json")
    assert code == 0
    assert {"name", "paper", "about", "differs", "published"} <= set(json.loads(out)[0])
