"""Claims of two processes exclude each other, and are for all pieces or for none."""

from rankbench.ledger.claims import Claims


def test_pieces_are_claimed_together_or_not_at_all(tmp_path):
    with Claims(tmp_path) as ours, Claims(tmp_path) as theirs:
        assert theirs.take("b")
        assert not ours.take("a", "b")
        assert theirs.take("a"), "a piece that we could not use stayed claimed"
        theirs.release("a", "b")
        assert ours.take("a", "b")
        assert not theirs.take("b")
    with Claims(tmp_path) as later:
        assert later.take("a", "b")
