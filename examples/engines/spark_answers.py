"""Answer the rows of a table with Spark: each Python worker reads the model once.

spark-submit spark_answers.py MODEL TABLE OUT    # pip install pyspark

TABLE is a file or a folder of Parquet with the column `text`, and OUT a folder of Parquet.
"""

import sys
from collections.abc import Callable

import numpy as np

import litebert


def make_predict(model: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what `predict_batch_udf` calls with the texts of a batch."""
    answer = litebert.BatchFunction(model)
    return lambda texts: answer({"text": texts})["prediction"].astype(str)


def make_embed(model: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the same for vectors, float32 (n, D)."""
    embed = litebert.BatchFunction(model, "embed")
    return lambda texts: embed({"text": texts})["vectors"]


def main() -> None:
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql import SparkSession
    from pyspark.sql.types import ArrayType, FloatType, StringType

    model, table, out = sys.argv[1:]
    spark = SparkSession.builder.appName("answers").getOrCreate()
    predict = predict_batch_udf(
        lambda: make_predict(model), return_type=StringType(), batch_size=1024
    )
    embed = predict_batch_udf(
        lambda: make_embed(model), return_type=ArrayType(FloatType()), batch_size=1024
    )
    rows = spark.read.parquet(table)
    rows = rows.withColumn("prediction", predict("text")).withColumn("vector", embed("text"))
    rows.write.parquet(out)


if __name__ == "__main__":
    main()
