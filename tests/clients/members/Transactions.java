import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A transactional producer that does what it reads, a line each, and answers each with "ok" or the
 * name of the error: init, begin, offsets GROUP TOPIC PARTITION OFFSET, commit, abort.
 */
public class Transactions {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("transactional.id", words[1]);
        settings.put("transaction.timeout.ms", words[2]);
        settings.put("max.block.ms", "60000");
        var bytes = new ByteArraySerializer();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try (var producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (String line; (line = lines.readLine()) != null; ) {
                try {
                    act(producer, line.split(" "));
                    System.out.println("ok");
                } catch (RuntimeException error) {
                    System.out.println(error.getClass().getSimpleName() + " " + error.getMessage());
                }
                System.out.flush();
            }
            producer.close(Duration.ofSeconds(1));
        }
    }

    @SuppressWarnings("removal") // members are not named here
    private static void act(KafkaProducer<byte[], byte[]> producer, String[] words) {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(
                    new TopicPartition(words[2], Integer.parseInt(words[3])),
                    new OffsetAndMetadata(Long.parseLong(words[4]))),
                new ConsumerGroupMetadata(words[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }
}
