"""Muster's views as a data source of Spark: `spark.read.format("muster")`.

Spark looks for modules whose names begin with `pyspark_`, so where the wheel is installed with
the Python of the driver, or of the Spark Connect server, the source is there without a call. The
wheel is also needed where executors run Python. Elsewhere:

>>> spark.dataSource.register(DefaultSource)  # doctest: +SKIP
>>> spark.read.format("muster").option("view", "epochs").load("store")  # doctest: +SKIP

Spark imports this module whenever it looks for any source, so it imports nothing else of ours.
docs/guide/sql.md lists the options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_muster.options import ReadOptions

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The views of a store, by name."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "muster"

    def schema(self) -> StructType:
        """Return the columns of the view; there is a store to read them from."""
        return self._asked.check_store().columns()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the view's rows."""
        from pyspark_muster.view_reader import PushedReader, ViewReader  # noqa: PLC0415 - see above

        asked = self._asked.check_batch().check_columns(schema)
        return PushedReader(asked) if asked.push else ViewReader(asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return what reads the events of the store as they come."""
        from pyspark_muster.limited_stream import open_stream  # noqa: PLC0415 - see above

        return open_stream(self._asked.check_stream().check_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, FBT001 - Spark's
        """Refuse: only a coordinator writes to a store.

        Raises
        ------
        SpecError
            Always, with what to do instead. Without this method, Spark says only that a writer
            "is not implemented".
        """
        from assignors import SpecError  # noqa: PLC0415 - see above

        raise SpecError(
            "format 'muster' only reads: a store is written by its coordinator alone; write the "
            "rows in another format, such as parquet, and commit offsets with muster.Member or "
            "muster.GroupOffsets"
        )

    def streamWriter(  # noqa: N802 - Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> NoReturn:
        """Refuse, as `writer` does."""
        self.writer(schema, overwrite)

    @property
    def _asked(self) -> ReadOptions:
        from pyspark_muster.options import ReadOptions  # noqa: PLC0415 - see above

        return ReadOptions.parse(self.options)
