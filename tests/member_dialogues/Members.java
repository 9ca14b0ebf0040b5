import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.stream.Collectors;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Applications with Kafka's own consumer, each with a thread of its own, for member dialogues.
 *
 * Argument: SERVERS. Each line of the input is a command to one application, as JSON; `ours.py`
 * does the same with our consumer and has the list. Each line of the output is what one of them
 * says, how it is now, or that it is done with a command.
 */
public final class Members {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(50);
    private static final String METRICS = "consumer-coordinator-metrics";

    private final String name;
    private final Map<String, String> actions = new ConcurrentHashMap<>();
    private final Semaphore gate = new Semaphore(0);
    private final ExecutorService thread = Executors.newSingleThreadExecutor();
    private KafkaConsumer<byte[], byte[]> consumer;
    private volatile boolean stopping;
    private boolean holding;
    private final Set<String> happened = ConcurrentHashMap.newKeySet();
    private long read;
    private String told = "";

    private Members(String name) {
        this.name = name;
    }

    /** Runs until the input ends. */
    public static void main(String[] arguments) throws IOException {
        Map<String, Members> every = new HashMap<>();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode command = JSON.readTree(line);
            Members member = every.computeIfAbsent(command.get("to").asText(), Members::new);
            switch (command.get("do").asText()) {
                case "stop" -> member.stopping = true;
                case "release" -> member.gate.release();
                case "listen" -> member.listen(command.get("actions"));
                default -> {
                    member.stopping = false;
                    member.thread.execute(() -> member.obey(command, arguments[0]));
                }
            }
        }
        System.exit(0);
    }

    private void obey(JsonNode command, String servers) {
        try {
            act(command, servers);
        } catch (RuntimeException | Error error) {
            say("error " + kind(error));
        }
        tellHow();
        tell(JSON.createObjectNode().put("done", true));
    }

    private void act(JsonNode command, String servers) {
        switch (command.get("do").asText()) {
            case "start" -> start(command, servers);
            case "subscribe" -> consumer.subscribe(texts(command.get("topics")), new Listener());
            case "poll" -> poll(command.get("ends_at").asText());
            case "unsubscribe" -> consumer.unsubscribe();
            case "enforce_rebalance" -> consumer.enforceRebalance(command.get("reason").asText());
            case "commit" -> commit(command.get("offsets"));
            case "committed" -> committed(command.get("partitions"));
            case "metrics" -> metrics(command);
            case "close" -> consumer.close(
                CloseOptions.groupMembershipOperation(
                    CloseOptions.GroupMembershipOperation.valueOf(
                        command.get("operation").asText())));
            default -> throw new IllegalArgumentException(command.toString());
        }
    }

    private void start(JsonNode command, String servers) {
        Map<String, Object> settings = new HashMap<>();
        command.get("settings").properties().forEach(
            each -> settings.put(each.getKey(), each.getValue().asText()));
        settings.computeIfPresent("partition.assignment.strategy", (key, names) -> classes(names));
        settings.put("bootstrap.servers", servers);
        listen(command.get("actions"));
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        try {
            consumer = new KafkaConsumer<>(settings, plain, plain);
        } catch (RuntimeException error) {
            say("refused");
            return;
        }
        consumer.subscribe(texts(command.get("topics")), new Listener());
    }

    private static String classes(Object names) {
        Map<String, String> known = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "hasty", Hasty.class.getName());
        return List.of(names.toString().split(",")).stream()
            .map(known::get).collect(Collectors.joining(","));
    }

    private void listen(JsonNode wanted) {
        actions.clear();
        wanted.properties().forEach(
            each -> actions.put(each.getKey(), each.getValue().asText()));
    }

    /** Polls until it is told to stop, or until what the command ends at has happened. */
    private void poll(String endsAt) {
        happened.clear();
        long enough = endsAt.startsWith("read ") ? Long.parseLong(endsAt.substring(5)) : Long.MAX_VALUE;
        while (!stopping && !happened.contains(endsAt) && read < enough) {
            try {
                read += consumer.poll(POLL).count();
            } catch (RuntimeException error) {
                say("error " + kind(error));
            }
            tellHow();
        }
    }

    private void commit(JsonNode offsets) {
        if (offsets.isEmpty()) {
            consumer.commitSync();
        } else {
            Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
            offsets.properties().forEach(
                each -> wanted.put(
                    partition(each.getKey()), new OffsetAndMetadata(each.getValue().asLong())));
            consumer.commitSync(wanted);
        }
        say("committed");
    }

    private void committed(JsonNode partitions) {
        TreeSet<String> found = new TreeSet<>();
        TreeSet<String> asked = new TreeSet<>(texts(partitions));
        consumer.committed(asked.stream().map(Members::partition).collect(Collectors.toSet()))
            .forEach((each, position) -> {
                if (position != null) {
                    found.add(each + "=" + position.offset());
                }
            });
        say("stored " + (found.isEmpty() ? "nothing" : String.join(" ", found)));
    }

    private void metrics(JsonNode command) {
        TreeMap<String, Double> values = new TreeMap<>();
        for (Map.Entry<MetricName, ? extends Metric> each : consumer.metrics().entrySet()) {
            if (each.getKey().group().equals(METRICS)) {
                Object value = each.getValue().metricValue();
                values.put(each.getKey().name(), ((Number) value).doubleValue());
            }
        }
        for (String pattern : texts(command.get("names"))) {
            values.keySet().stream().filter(each -> each.matches(pattern)).forEach(this::say);
        }
        for (String each : texts(command.get("counts"))) {
            say(each + " " + values.get(each).longValue());
        }
        command.get("at_least").properties().forEach(each -> {
            boolean reached = values.get(each.getKey()) >= each.getValue().asDouble();
            say(each.getKey() + (reached ? " at least " : " below ") + each.getValue());
        });
    }

    private static TopicPartition partition(String name) {
        int dash = name.lastIndexOf('-');
        return new TopicPartition(
            name.substring(0, dash), Integer.parseInt(name.substring(dash + 1)));
    }

    private static List<String> texts(JsonNode array) {
        return JSON.convertValue(
            array, JSON.getTypeFactory().constructCollectionType(List.class, String.class));
    }

    /** A name for an error that does not depend on the client: that of Kafka's exception. */
    private static String kind(Throwable error) {
        if (error.getCause() instanceof Raised) {
            return "of the listener";
        }
        return error.getClass().getSimpleName().replace("Exception", "");
    }

    private static String names(Collection<TopicPartition> partitions) {
        return partitions.isEmpty() ? "nothing" : partitions.stream()
            .map(TopicPartition::toString).sorted().collect(Collectors.joining(" "));
    }

    private void say(String what) {
        happened.add(what.split(" ")[0]);
        tell(JSON.createObjectNode().put("says", what));
    }

    /** Tells how the application is now, if that is news. */
    private void tellHow() {
        if (consumer == null) {
            return;
        }
        ObjectNode how = JSON.createObjectNode().put("holds", holding).put("read", read);
        try {
            how.put("has", names(consumer.assignment())).put("many", consumer.assignment().size());
            how.put("generation", consumer.groupMetadata().generationId());
            how.put("id", consumer.groupMetadata().memberId());
        } catch (RuntimeException closed) {
            how.put("has", "nothing").put("many", 0).put("generation", -1).put("id", "");
        }
        if (!how.toString().equals(told)) {
            told = how.toString();
            tell(how);
        }
    }

    private void tell(ObjectNode event) {
        synchronized (System.out) {
            System.out.println(event.put("from", name));
            System.out.flush();
        }
    }

    /** What a listener raises that was told to. */
    private static final class Raised extends RuntimeException {
    }

    /** Says what it is told, and then does what it was asked to do. */
    private final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            called("revoked", partitions);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            called("assigned", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            called("lost", partitions);
        }

        private void called(String change, Collection<TopicPartition> partitions) {
            say(change + " " + names(partitions));
            switch (actions.getOrDefault(change, "")) {
                case "raise" -> throw new Raised();
                case "hold" -> hold();
                case "commit" -> commitAll(partitions);
                default -> { }
            }
        }

        private void hold() {
            holding = true;
            tellHow();
            gate.acquireUninterruptibly();
            holding = false;
        }

        private void commitAll(Collection<TopicPartition> partitions) {
            try {
                consumer.commitSync(partitions.stream().collect(
                    Collectors.toMap(each -> each, each -> new OffsetAndMetadata(7))));
                say("committed");
            } catch (RuntimeException error) {
                say("error " + kind(error));
            }
        }
    }

    /** An assignor that gives everything to the last member at once, whoever has it. */
    public static final class Hasty implements ConsumerPartitionAssignor {
        @Override
        public String name() {
            return "hasty";
        }

        @Override
        public List<RebalanceProtocol> supportedProtocols() {
            return List.of(RebalanceProtocol.COOPERATIVE);
        }

        @Override
        public ByteBuffer subscriptionUserData(Set<String> topics) {
            return null;
        }

        @Override
        public GroupAssignment assign(Cluster cluster, GroupSubscription group) {
            TreeMap<String, Assignment> given = new TreeMap<>();
            List<TopicPartition> every = group.groupSubscription().values().stream()
                .flatMap(each -> each.topics().stream()).distinct()
                .flatMap(topic -> cluster.partitionsForTopic(topic).stream())
                .map(each -> new TopicPartition(each.topic(), each.partition()))
                .collect(Collectors.toList());
            group.groupSubscription().keySet()
                .forEach(member -> given.put(member, new Assignment(List.of())));
            given.put(given.lastKey(), new Assignment(every));
            return new GroupAssignment(given);
        }
    }
}
