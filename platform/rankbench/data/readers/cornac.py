"""Text files of Cornac: `user item`, `user item rating` or `user item rating time` (UI, UIR, UIRT), separated by tabs, without
a header; the number of columns tells which. For baskets, `user basket item time`, the card sets `item: 2, time: 3`.
"""

from rankbench.data.readers import delimited, reads

read = reads("cornac")(delimited.read_by_position)
