"""Parts of Spark's `SparkEnv`, which py4j cannot look at in every Spark."""

from __future__ import annotations

from typing import Any

from fencepost.spark.checkpoint.files import java_class

PARTS = {
    "blockManager": "org.apache.spark.storage.BlockManager",
    "mapOutputTracker": "org.apache.spark.MapOutputTracker",
}


def part_of_spark_env(context: Any, name: str) -> Any:
    """One of PARTS, of the SparkContext.

    To call a method, py4j lists all methods of the class. In PySpark 4.3 some of SparkEnv's have types of protobuf, a
    library that PySpark does not bring, so the list fails. A method handle names one method.
    """
    find, method_type = (
        java_class(context._jvm, f"java.lang.invoke.{kind}") for kind in ("MethodHandles", "MethodType")
    )
    class_of = java_class(context._jvm, "java.lang.Class").forName
    returns = method_type.methodType(class_of(PARTS[name]))
    handle = find.publicLookup().findVirtual(class_of("org.apache.spark.SparkEnv"), name, returns)
    return handle.invokeWithArguments([context._jsc.sc().env()])
