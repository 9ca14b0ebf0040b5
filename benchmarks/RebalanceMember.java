import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member for `benchmarks/rebalance.py`, Kafka's own; rebalance_member.py has the others.
 *
 * Arguments: KIND SERVERS GROUP TOPIC. Each line is `wall-clock-ms partition last-offset`. SIGTERM
 * closes the consumer and ends it.
 */
public final class RebalanceMember {
    private static final String SESSION_MS = "6000";
    private static final String HEARTBEAT_MS = "1000";
    private static final Duration POLL = Duration.ofMillis(100);

    private static final PrintStream OUT =
        new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));

    private static volatile boolean stopping = false;

    private RebalanceMember() {
    }

    /** Runs until told to stop. */
    public static void main(String[] arguments) {
        stopAtSignal(Thread.currentThread());
        String kind = arguments[0];
        Properties settings = settings(kind.substring(kind.lastIndexOf(' ') + 1));
        settings.setProperty(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        settings.setProperty(ConsumerConfig.GROUP_ID_CONFIG, arguments[2]);
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, plain, plain)) {
            consumer.subscribe(List.of(arguments[3]));
            while (!stopping) {
                tell(consumer.poll(POLL));
            }
        }
    }

    private static Properties settings(String protocol) {
        Properties settings = new Properties();
        if (protocol.equals("consumer")) {
            settings.setProperty(ConsumerConfig.GROUP_PROTOCOL_CONFIG, "consumer");
            return settings;
        }
        Class<?> assignor =
            protocol.equals("cooperative") ? CooperativeStickyAssignor.class : RangeAssignor.class;
        settings.setProperty(
            ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, assignor.getName());
        settings.setProperty(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, SESSION_MS);
        settings.setProperty(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, HEARTBEAT_MS);
        return settings;
    }

    /** Prints what a poll returned. */
    private static void tell(ConsumerRecords<byte[], byte[]> found) {
        long tenths = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()) / 100;
        String time = tenths / 10 + "." + tenths % 10;
        for (TopicPartition partition : found.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> records = found.records(partition);
            long last = records.get(records.size() - 1).offset();
            OUT.println(time + " " + partition.partition() + " " + last);
        }
        OUT.flush();
    }

    /** Lets the main thread close the consumer: the process ends once its shutdown hooks have. */
    private static void stopAtSignal(Thread main) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
    }
}
