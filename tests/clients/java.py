"""A member on the Java client, and Kafka's own tools; their jars come as Delta's jars do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from spark_jobs.jars import fetch_jars, java_command, spark_jars
from tests.conftest import ROOT

KAFKA = ("org.apache.kafka", "kafka-clients", "4.4.0")
DIGESTS = {
    "kafka-clients-4.4.0.jar": "1ab07317eb6633241392449d329dbdc5d9251e6ffc4926860f42dd966e88bdf9"
}
FROM_SPARK = ("slf4j-api-2", "jackson-core-2", "jackson-databind-2", "jackson-annotations-2")
"""What it needs beside it; Spark has them."""
TOOLS = ("org.apache.kafka", "kafka-tools", "4.3.1")
CONFIGS = ("org.apache.kafka", "kafka_2.13", "4.3.1")
"""What has kafka-configs; of its jars those beginning with `SCALA` are needed beside the tools'."""
SCALA = ("kafka_2.13-", "scala-")
JOSE = ("org.bitbucket.b_c", "jose4j", "0.9.6")
JOSE_DIGESTS = {
    "jose4j-0.9.6.jar": "7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef"
}
"""What Kafka's clients log in with tokens by."""
SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")


class JavaMissingError(RuntimeError):
    """There is no Java compiler; the message says what to do."""


def compiled(folder, name="Member"):
    """Compile a class of tests/clients/members into a folder and return the command that runs it."""
    java = java_command()
    javac = java and shutil.which("javac", path=beside(java))
    if javac is None:
        raise JavaMissingError("javac is missing: sudo apt-get install openjdk-17-jdk-headless")
    jars = fetch_jars(KAFKA, DIGESTS, "Kafka's")
    jars += [next(spark_jars().glob(f"{name}*.jar")) for name in FROM_SPARK]
    path = ":".join(map(str, [folder, *jars]))
    source = str(ROOT / "tests" / "clients" / "members" / f"{name}.java")
    subprocess.run([javac, "-cp", path, "-d", str(folder), source], check=True)
    return (java, *SMALL, "-cp", path, name)


def tools():
    """Return the command that runs one of Kafka's tools by the name of its class."""
    java = java_command()
    if java is None:
        raise JavaMissingError("Java is missing: sudo apt-get install openjdk-17-jre-headless")
    lines = (ROOT / "tests" / "clients" / "tools.lock").read_text().splitlines()
    digests = {name: digest for digest, name in map(str.split, lines)}
    scala = {name: digests.pop(name) for name in list(digests) if name.startswith(SCALA)}
    jars = fetch_jars(TOOLS, digests, "Kafka's") + fetch_jars(CONFIGS, scala, "Kafka's")
    jars += [next(spark_jars().glob(f"{name}*.jar")) for name in ("log4j-api-2", "log4j-core-2")]
    return (java, *SMALL, "-cp", ":".join(map(str, jars)))


def with_tokens(command, url):
    """Return the command of a tool that gets tokens at a URL."""
    at = command.index("-cp") + 1
    jars = ":".join(map(str, fetch_jars(JOSE, JOSE_DIGESTS, "Kafka's")))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"
    return (command[0], allowed, *command[1:at], f"{command[at]}:{jars}", *command[at + 1 :])


def beside(java):
    """Return where the compiler of a Java is: in its folder, or anywhere on the path."""
    return os.pathsep.join([str(Path(java).resolve().parent), os.environ.get("PATH", "")])
