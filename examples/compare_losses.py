"""Twenty lines from a DataFrame to a table of five losses with intervals, and a chart."""

import numpy as np
import pandas as pd

import rankbench.api as rb

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    taste = rng.integers(0, 8, 400)  # every customer likes one of eight groups of products
    customer = rng.integers(0, 400, 20_000)
    product = np.where(
        rng.random(20_000) < 0.7, taste[customer] * 25 + rng.integers(0, 25, 20_000), rng.integers(0, 200, 20_000)
    )
    clicks = pd.DataFrame({"customer": customer, "product": product})

    shop = rb.dataset(clicks, user="customer", item="product", name="my-shop")
    results = rb.sweep(
        datasets=shop,
        methods=["bpr", "bce", "softmax", "sl", "ccl"],
        params={"epochs": 10},
        metric="ndcg@10",
        name="five-losses",
    )
    print(results.table[["model", "ndcg@10", "ndcg@10 low", "ndcg@10 high", "ndcg@10 tied"]])
    print(results.chart("five-losses.png", "ndcg@10"))
