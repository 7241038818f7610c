"""java: the command of a member on the Java client; its jar comes as Delta's jars do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from conftest import ROOT

from spark_jobs.jars import fetched, java_command, spark_jars

KAFKA = ("org.apache.kafka", "kafka-clients", "4.4.0")
DIGESTS = {
    "kafka-clients-4.4.0.jar": "1ab07317eb6633241392449d329dbdc5d9251e6ffc4926860f42dd966e88bdf9"
}
FROM_SPARK = ("slf4j-api-2", "jackson-core-2", "jackson-databind-2", "jackson-annotations-2")
"""What it needs beside it; Spark has them."""


class JavaMissingError(RuntimeError):
    """There is no Java compiler; the message says what to do."""


def compiled(folder):
    """Compile tests/java/Member.java into a folder and return the command that runs it."""
    java = java_command()
    javac = java and shutil.which("javac", path=beside(java))
    if javac is None:
        raise JavaMissingError("javac is missing: sudo apt-get install openjdk-17-jdk-headless")
    jars = fetched(KAFKA, DIGESTS, "Kafka's")
    jars += [next(spark_jars().glob(f"{name}*.jar")) for name in FROM_SPARK]
    path = ":".join(map(str, [folder, *jars]))
    source = str(ROOT / "tests" / "java" / "Member.java")
    subprocess.run([javac, "-cp", path, "-d", str(folder), source], check=True)
    small = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
    return (java, *small, "-cp", path, "Member")


def beside(java):
    """Return where the compiler of a Java is: in its folder, or anywhere on the path."""
    return os.pathsep.join([str(Path(java).resolve().parent), os.environ.get("PATH", "")])
