"""Page links of a wiki, from the SQL dumps of MediaWiki as of 2025: user = the linking page, item = the page linked to.

The part `all` is *-pagelinks.sql.gz; a link refers to a row of linktarget, that row has a title, and the title has a page.
Companions of the card: `linktarget` and `page`, and perhaps `redirect` (*-linktarget.sql.gz and so on).

- Both pages of a link are in namespace 0, the articles; ids are page ids.
- A link to a title without a page, or from a deleted page, is dropped.
- A link from a redirect page is dropped, because such a page has no text of its own.
- A link to a redirect page is kept as it is without the companion `redirect`. With it, the link counts for the target of
  the redirect, one step only (for a double redirect, the second redirect page), and is dropped if the target is not an
  article of this wiki. The step `duplicates: first` then removes the repeated links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankbench.core.errors import DataError
from rankbench.data.raw import RawFile
from rankbench.data.readers import reads
from rankbench.data.sql_dump import rows

ARTICLES = 0  # the namespace
NUMBER, TEXT = pa.int64(), pa.binary()


@reads("mediawiki-sql")
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item: page ids, int64. Memory: about 50 bytes per page, 16 per linked title, one batch of rows.

    Raises DataError for a missing companion, or as `sql_dump.rows` does.
    """
    linktarget, page = raw.companion("linktarget"), raw.companion("page")
    pages = _pages(page)
    target_ids, target_pages = _targets(linktarget, pages, _leads_to(raw.companions.get("redirect"), pages))
    for batch in rows(raw, "pagelinks", {"pl_from": NUMBER, "pl_from_namespace": NUMBER, "pl_target_id": NUMBER}):
        article = batch["pl_from_namespace"].to_numpy() == ARTICLES
        user, target = batch["pl_from"].to_numpy()[article], batch["pl_target_id"].to_numpy()[article]
        source, item = _position(pages.ids, user), _position(target_ids, target)
        kept = (source >= 0) & (item >= 0) & ~pages.is_redirect[source]
        if kept.any():
            yield pa.table({"user": user[kept], "item": target_pages[item[kept]]})


@dataclass(frozen=True)
class _Pages:
    """The articles by page id: `ids` (n,) int64, sorted; `is_redirect` (n,) bool; `titles` (n,) binary, as bytes."""

    ids: np.ndarray
    is_redirect: np.ndarray
    titles: pa.ChunkedArray

    def called(self, titles: pa.ChunkedArray) -> np.ndarray:
        """The position of the page of each title, or -1."""
        return pc.fill_null(pc.index_in(titles, value_set=self.titles), -1).to_numpy()


def _pages(raw: RawFile) -> _Pages:
    columns = {"page_id": NUMBER, "page_namespace": NUMBER, "page_title": TEXT, "page_is_redirect": NUMBER}
    articles = [_articles(batch, "page_namespace") for batch in rows(raw, "page", columns)]
    if not sum(map(len, articles)):
        raise DataError(f"{raw.path}: no page of namespace {ARTICLES}")
    table = pa.concat_tables(articles).sort_by("page_id")
    ids = table["page_id"].to_numpy()
    if ids[0] < 0:
        raise DataError(f"{raw.path}: page_id is {ids[0]}; page ids are 0 or more")
    return _Pages(ids, table["page_is_redirect"].to_numpy() != 0, table["page_title"])


def _leads_to(raw: RawFile | None, pages: _Pages) -> np.ndarray:
    """For each page, the id of the page that a link to it counts for, or -1."""
    leads_to = pages.ids.copy()
    if raw is None:
        return leads_to
    leads_to[pages.is_redirect] = -1
    columns = {"rd_from": NUMBER, "rd_namespace": NUMBER, "rd_title": TEXT, "rd_interwiki": TEXT}
    for batch in rows(raw, "redirect", columns):
        articles = _articles(batch, "rd_namespace")
        local = articles.filter(pc.equal(articles["rd_interwiki"], b""))
        source, target = _position(pages.ids, local["rd_from"].to_numpy()), pages.called(local["rd_title"])
        known = (source >= 0) & (target >= 0) & pages.is_redirect[source]
        leads_to[source[known]] = pages.ids[target[known]]
    return leads_to


def _targets(raw: RawFile, pages: _Pages, leads_to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted ids of the linked titles that have a page, and the id of that page."""
    ids, page_ids = [], []
    for batch in rows(raw, "linktarget", {"lt_id": NUMBER, "lt_namespace": NUMBER, "lt_title": TEXT}):
        articles = _articles(batch, "lt_namespace")
        position = pages.called(articles["lt_title"])
        page = np.where(position >= 0, leads_to[position], -1)
        ids.append(articles["lt_id"].to_numpy()[page >= 0])
        page_ids.append(page[page >= 0])
    if not sum(map(len, ids)):
        raise DataError(f"{raw.path}: none of its titles has a page; are the dumps of the same wiki and date?")
    order = np.argsort(np.concatenate(ids), kind="stable")
    return np.concatenate(ids)[order], np.concatenate(page_ids)[order]


def _articles(batch: pa.Table, namespace: str) -> pa.Table:
    return batch.filter(pc.equal(batch[namespace], ARTICLES))


def _position(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The position of each of `wanted` in `ids`, which are sorted and not empty, or -1."""
    position = np.searchsorted(ids, wanted)
    position[position == len(ids)] = 0
    return np.where(ids[position] == wanted, position, -1)
