import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Copies a topic to another: bootstrap servers, application id, from, to, processing guarantee, folder. */
public class Streams {
  public static void main(String[] args) {
    Properties words = new Properties();
    words.put("bootstrap.servers", args[0]);
    words.put("application.id", args[1]);
    words.put("processing.guarantee", args[4]);
    words.put("state.dir", args[5]);
    words.put("commit.interval.ms", "200");
    words.put("auto.offset.reset", "earliest");
    words.put("default.key.serde", Serdes.StringSerde.class);
    words.put("default.value.serde", Serdes.StringSerde.class);
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(args[2]).to(args[3]);
    KafkaStreams streams = new KafkaStreams(builder.build(), words);
    streams.setStateListener((now, before) -> System.out.println(now));
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
