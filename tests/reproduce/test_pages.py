"""What the page of a paper says about the searches of its rows."""

from rankbench.reproduce.ledger_records import StoredSearch
from rankbench.reproduce.pages import write_pages

from .stored import stored

TABLE = """\
arms:
  - name: stated
    method: ease
    params: {lam: {choice: [1, 10]}}
    chosen: {synthetic: {lam: 10}}
    published: {synthetic: {recall@20: 0.5}}
  - name: stated, not measured
    method: ease
    params: {lam: {choice: [1, 10]}}
    chosen: {synthetic: {lam: 1}}
    published: {synthetic: {recall@20: 0.5}}
  - name: searched
    method: ease
    params: {lam: {choice: [2, 20]}}
    published: {synthetic: {recall@20: 0.5}}
search: {choose: {metric: recall@20}}
"""


def test_a_page_says_where_chosen_settings_come_from(rows, home, evidence, tmp_path):
    stated, _, searched = rows
    evidence.add(
        StoredSearch(
            "synthetic", searched.card_key, "ease", searched.arm.params, "recall@20", draws=6, chosen={"lam": 2}, value=0.5,
            beyond=2, stopped=3, seconds=12.4,
        )
    )  # fmt: skip
    for row, device in ((stated, "cpu"), (searched, "cuda")):
        config = row.setting("chosen", evidence)
        evidence.add(stored(row, config, {"recall@20": (0.5, 0.4, 0.6)}, device=device))
    write_pages(tmp_path, [stated.table], evidence, home)
    assert "1 of the 2 fits in the evidence ran on a GPU." in (tmp_path / "README.md").read_text()
    lines = (tmp_path / "toy.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        "- stated: chosen on validation by earlier searches, as the experiment file states; the evidence does not have the "
        "number of their draws",
        "- searched: chosen from 6 settings by recall@20 on validation, 12 s, 2 more beyond the ranges, 3 of all ended early",
    ]
