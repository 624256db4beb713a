import pytest

from megalabel.data.builtin._roff import LONGEST_DESCRIPTION, Page, decode_page, read_page


def said(source):
    page = read_page(source)
    return page.names, page.description


def seen(body):
    return [f"{see.name}({see.section})" if see.section else see.name for see in read_page(see_also(body)).see_also]


def see_also(body):
    return f".TH X 1\n.SH NAME\nx \\- y\n.SH SEE ALSO\n{body}\n.SH AUTHOR\n.BR nobody (1)\n"


@pytest.mark.parametrize(
    ("section", "names", "description"),
    [
        (".SH NAME\ncmp \\- compare two files", ["cmp"], "compare two files"),
        (".SH NAME\ncmp - compare two files", ["cmp"], "compare two files"),
        (".SH NAME\ncmp \\(em compare two\nfiles", ["cmp"], "compare two files"),
        (".SH NAME\ncmp \\-\\- compare", ["cmp"], "compare"),
        ('.SH "NAME"\n.B cmp\n\\- compare\n.B two\nfiles', ["cmp"], "compare two files"),
        (".SH\nNAME\ncmp, same\\ \\- compare", ["cmp", "same"], "compare"),
        (".SH NAME:\n.BR cmp ,\n.B same\n\\- compare", ["cmp", "same"], "compare"),
        (".SH Name\n\\fBcmp\\fR, \\f(CWsame\\fP \\- \\s-1IBM\\s0 \\f[CB]tool\\f[R]", ["cmp", "same"], "IBM tool"),
        (".Sh NAME\n.Nm cmp ,\n.Nm same\n.Nd compare two files", ["cmp", "same"], "compare two files"),
        (".Sh NAME\n.Nm cmp , same\n.Nd compare Nm files", ["cmp", "same"], "compare Nm files"),
        (
            ".SH NAME\ncmp \\- compare\n.br\nsame \\- the same\n.PP\nA long text - with a dash.",
            ["cmp", "same"],
            "compare",
        ),
        (".SH NAME\ncmp,\n.br\nsame \\- compare", ["cmp", "same"], "compare"),
        (".SH NAME\ncmp(1) \\- compare", ["cmp"], "compare"),
        (".SS NAME\n.nf\ncmp \\- compare\n.SS Synopsis\ncmp - not this", ["cmp"], "compare"),
        ('.SH "NAME"\nText::Cmp \\- isn\\*(Aqt it\n.IX Header "NAME"', ["Text::Cmp"], "isn't it"),
        (".SH NAME\ncmp \\- na\\[:i]ve \\(co caf\\['e] \\[u2019]s \\(:u", ["cmp"], "naïve © café 's ü"),
        (
            ".SH NAME\ncmp \\- one\\&.two\\|\\^\\%three\\c\n.if t nothing\n.ie n four\n.el five",
            ["cmp"],
            "one.twothree four",
        ),
        (".SH NAME\ncmp \\- a \\h'1n'b \\v'-1n'c \\w'long'd \\\" comment", ["cmp"], "a b c d"),
        (".SH NAME\ncmp \\- a \\\nb", ["cmp"], "a b"),
        (".SH NAME\n.ig\ncmp - hidden\n..\ncmp \\- shown", ["cmp"], "shown"),
        (".SH NAME\n.if t \\{\\\nhidden - for paper\n.\\}\n.if n \\{\\\ncmp \\- shown\n.\\}", ["cmp"], "shown"),
        (".ds Pr cmp tool\n.SH NAME\ncmp \\- the \\*(Pr and \\*[Pr]", ["cmp"], "the cmp tool and cmp tool"),
        ('\'\\" t\n.SH NAME\n.B "cmp" "same" \\- "a ""b"""', ["cmp", "same"], 'a "b"'),
    ],
)
def test_name(section, names, description):
    assert said(f".TH CMP 1\n{section}\n.SH SYNOPSIS\ncmp - a file\n") == (tuple(names), description)


@pytest.mark.parametrize(
    "section", ["", ".SH NAME", ".SH NAME\ncmp", ".SH NAME\ncmp \\-", ".SH NAME\ncmp \\- ...", ".SH NOM\na - b"]
)
def test_no_description(section):
    assert read_page(f"{section}\n.SH SYNOPSIS\ncmp - a file\n") == Page()


def test_long_description_is_cut_at_a_word():
    description = said(".SH NAME\ncmp \\- " + "word " * 100)[1]
    assert len(description) <= LONGEST_DESCRIPTION
    assert description.endswith("word…")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (".BR diff (1),\n.BR comm (1)", ["diff(1)", "comm(1)"]),
        (".IR diff (1)\n.RB ( comm (1))", ["diff(1)", "comm(1)"]),
        ("\\fBdiff\\fR\\|(1), comm\\ (1)\nand \\fIsort\\fP(1posix).", ["diff(1)", "comm(1)", "sort(1posix)"]),
        (".Xr diff 1 ,\n.Xr comm 1 , Xr sort 1 .", ["diff(1)", "comm(1)", "sort(1)"]),
        (".MR diff 1 ,\n.MR comm 1 .", ["diff(1)", "comm(1)"]),
        (".Bl -tag\n.It Xr diff 1\nThe other tool.\n.El", ["diff(1)"]),
        (".BR diff (1),\n.BR diff (1)", ["diff(1)"]),
        ("diff(n), X11::Auth(3pm)", ["diff(n)", "X11::Auth(3pm)"]),
        (
            "Text::Diff, \\fBFile::Cmp\\fR. See Algorithm::Diff for more.",
            ["Text::Diff", "File::Cmp", "Algorithm::Diff"],
        ),
        (
            '.IP "\\(bu" 4\nDBI\n.IP "* Moose" 4\n.ie n .IP """Carp""" 4\n.el .IP "\\f(CWCarp\\fR" 4',
            ["DBI", "Moose", "Carp"],
        ),
        ("See also Moose. It is a long story (1 day), said they.", ["Moose"]),
        (".B diff ,\n.B comm", ["diff", "comm"]),
        (".SS Tools\n.BR diff (1)\n.SS More\n.BR comm (1)", ["Tools", "diff(1)", "More", "comm(1)"]),
        (".UR https://example.org/diff\n.UE\n.nf\n.TS\n", []),
        (".de Xx\n.BR diff (1)\n..\n.so man1/other.1\n", []),
    ],
)
def test_see_also(body, names):
    assert seen(body) == names


def test_see_also_twice():
    page = read_page(see_also(".BR diff (1)") + ".SH SEE ALSO\n.BR comm (1)\n")
    assert [see.name for see in page.see_also] == ["diff", "comm"]


@pytest.mark.parametrize(
    "source", [".so man3/printf.3\n", '.\\" generated\n.so man3/printf.3', "'so man3/printf.3\n\n"]
)
def test_link(source):
    assert read_page(source) == Page(source="man3/printf.3")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("é".encode(), "é"),
        ("é".encode("latin-1"), "é"),
        (b"'\\\" -*- coding: koi8-r -*-\n" + "я".encode("koi8-r"), "я"),
        (b"'\\\" -*- coding: no-such -*-\n" + "я".encode(), "я"),
    ],
)
def test_encodings(content, text):
    assert decode_page(content).endswith(text)


@pytest.mark.parametrize(
    "text", ["\\", "\\f", "\\*", "\\(", "\\[", "\\s", "\\h'", "\\*[", "\\n(", ".SH", ".if", ".de", ".if n \\{"]
)
def test_cut_off_anywhere(text):
    read_page(f".SH NAME\ncmp \\- compare{text}\n")
    read_page(f".SH NAME\n{text}")
    read_page(f".SH NAME\ncmp \\- compare\n.BR {text}")
