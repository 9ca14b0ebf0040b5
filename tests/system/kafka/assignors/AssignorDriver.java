import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Runs Kafka's own assignors on groups that it reads from its input, and times them.
 *
 * One group: a line "assign NAME TOPICS MEMBERS ROUNDS", a line for each topic, "name partitions" and
 * the racks of each partition if known ("r1,r2" or "-"), and four for each member: "id instance rack
 * generation", its topics by number, the topics it owns partitions of, each followed by a colon and
 * ranges of partitions, and its user data in hexadecimal; a dash is nothing.
 * The answer: "nanoseconds NUMBER" (the median of the rounds), then for each member "id" and what it
 * gets in the form of what it owns; then "done". Or one line "error TEXT".
 */
public final class AssignorDriver {
    private final BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final BufferedWriter out =
        new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));

    private List<String> topics;
    private int[] partitions;
    private List<List<Set<String>>> racks;
    private Map<String, Member> members;

    private record Member(
        Optional<String> instance, Optional<String> rack, int generation, List<Integer> wanted,
        Map<Integer, Set<Integer>> owned, ByteBuffer userData) { }

    private interface Work {
        Map<String, Map<String, Set<Integer>>> run();
    }

    public static void main(String[] arguments) throws IOException {
        new AssignorDriver().serve();
    }

    private void serve() throws IOException {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            readTopics(Integer.parseInt(words[2]));
            readMembers(Integer.parseInt(words[3]));
            answer(words[1], Integer.parseInt(words[4]));
        }
    }

    private void readTopics(int count) throws IOException {
        topics = new ArrayList<>();
        partitions = new int[count];
        racks = new ArrayList<>();
        for (int topic = 0; topic < count; topic++) {
            String[] words = in.readLine().split(" ");
            topics.add(words[0]);
            partitions[topic] = Integer.parseInt(words[1]);
            List<Set<String>> where = new ArrayList<>();
            for (int i = 2; i < words.length; i++)
                where.add(words[i].equals("-") ? Set.of() : Set.of(words[i].split(",")));
            racks.add(where);
        }
    }

    private void readMembers(int count) throws IOException {
        members = new HashMap<>();
        for (int i = 0; i < count; i++) {
            String[] words = in.readLine().split(" ");
            List<Integer> wanted = new ArrayList<>();
            for (String word : words(in.readLine()))
                wanted.add(Integer.parseInt(word));
            Map<Integer, Set<Integer>> owned = readPartitions(in.readLine());
            String hex = in.readLine();
            ByteBuffer data = hex.equals("-") ? null : ByteBuffer.wrap(
                java.util.HexFormat.of().parseHex(hex));
            members.put(words[0], new Member(
                optional(words[1]), optional(words[2]), Integer.parseInt(words[3]), wanted, owned,
                data));
        }
    }

    private static Optional<String> optional(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }

    private static String[] words(String line) {
        return line.equals("-") ? new String[0] : line.split(" ");
    }

    private static Map<Integer, Set<Integer>> readPartitions(String line) {
        Map<Integer, Set<Integer>> all = new HashMap<>();
        for (String word : words(line)) {
            String[] halves = word.split(":");
            Set<Integer> numbers = all.computeIfAbsent(Integer.parseInt(halves[0]), k -> new HashSet<>());
            for (String range : halves[1].split(",")) {
                String[] ends = range.split("-");
                for (int p = Integer.parseInt(ends[0]); p <= Integer.parseInt(ends[ends.length - 1]); p++)
                    numbers.add(p);
            }
        }
        return all;
    }

    private void answer(String name, int rounds) throws IOException {
        Work work = switch (name) {
            case "range" -> client(RangeAssignor::new);
            case "roundrobin" -> client(RoundRobinAssignor::new);
            case "sticky" -> client(StickyAssignor::new);
            case "cooperative-sticky" -> client(CooperativeStickyAssignor::new);
            case "server-uniform" -> server(new UniformAssignor());
            case "server-range" ->
                server(new org.apache.kafka.coordinator.group.assignor.RangeAssignor());
            default -> throw new IllegalArgumentException(name);
        };
        List<Long> times = new ArrayList<>();
        Map<String, Map<String, Set<Integer>>> result = null;
        try {
            for (int round = 0; round < rounds; round++) {
                result = work.run();
                times.add(nanoseconds);
            }
        } catch (RuntimeException error) {
            out.write("error " + error.toString().replace('\n', ' ') + "\n");
            out.flush();
            return;
        }
        times.sort(null);
        out.write("nanoseconds " + times.get(rounds / 2) + "\n");
        for (Map.Entry<String, Map<String, Set<Integer>>> entry : result.entrySet())
            out.write(entry.getKey() + written(entry.getValue()) + "\n");
        out.write("done\n");
        out.flush();
    }

    private static String written(Map<String, Set<Integer>> all) {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, Set<Integer>> entry : new TreeMap<>(all).entrySet()) {
            if (entry.getValue().isEmpty())
                continue;
            text.append(' ').append(entry.getKey()).append(':');
            String comma = "";
            for (int number : entry.getValue().stream().sorted().toList()) {
                text.append(comma).append(number);
                comma = ",";
            }
        }
        return text.toString();
    }

    private long nanoseconds;

    // ------------------------------------------------------------------------- clients' assignors

    private Work client(java.util.function.Supplier<ConsumerPartitionAssignor> make) {
        Cluster cluster = cluster();
        return () -> {
            // Subscriptions hold buffers that reading moves on: new ones for each round.
            GroupSubscription group = new GroupSubscription(subscriptions());
            ConsumerPartitionAssignor assignor = make.get();
            long start = System.nanoTime();
            Map<String, Assignment> result = assignor.assign(cluster, group).groupAssignment();
            nanoseconds = System.nanoTime() - start;
            Map<String, Map<String, Set<Integer>>> answer = new HashMap<>();
            result.forEach((member, assignment) -> {
                Map<String, Set<Integer>> all = new HashMap<>();
                for (TopicPartition each : assignment.partitions())
                    all.computeIfAbsent(each.topic(), k -> new HashSet<>()).add(each.partition());
                answer.put(member, all);
            });
            return answer;
        };
    }

    private Cluster cluster() {
        Map<String, Node> nodes = new HashMap<>();
        Node nowhere = new Node(0, "localhost", 9092);
        List<PartitionInfo> infos = new ArrayList<>();
        for (int topic = 0; topic < topics.size(); topic++) {
            for (int p = 0; p < partitions[topic]; p++) {
                List<Node> replicas = new ArrayList<>();
                if (p < racks.get(topic).size())
                    for (String rack : racks.get(topic).get(p))
                        replicas.add(nodes.computeIfAbsent(
                            rack, r -> new Node(nodes.size() + 1, "localhost", 9092, r)));
                Node[] all = replicas.isEmpty() ? new Node[] {nowhere} : replicas.toArray(Node[]::new);
                infos.add(new PartitionInfo(topics.get(topic), p, all[0], all, all));
            }
        }
        List<Node> all = new ArrayList<>(nodes.values());
        all.add(nowhere);
        return new Cluster("test", all, infos, Set.of(), Set.of());
    }

    private Map<String, Subscription> subscriptions() {
        Map<String, Subscription> all = new HashMap<>();
        members.forEach((id, member) -> {
            List<String> wanted = member.wanted.stream().map(topics::get).toList();
            List<TopicPartition> owned = new ArrayList<>();
            member.owned.forEach((topic, numbers) ->
                numbers.forEach(p -> owned.add(new TopicPartition(topics.get(topic), p))));
            ByteBuffer data = member.userData == null ? null : member.userData.duplicate();
            Subscription made = new Subscription(wanted, data, owned, member.generation, member.rack);
            made.setGroupInstanceId(member.instance);
            all.put(id, made);
        });
        return all;
    }

    // -------------------------------------------------------------------------- server's assignors

    private Work server(ConsumerGroupPartitionAssignor assignor) {
        List<Uuid> ids = new ArrayList<>();
        Map<Uuid, Integer> numbers = new HashMap<>();
        for (int topic = 0; topic < topics.size(); topic++) {
            ids.add(new Uuid(1, topic + 1));
            numbers.put(ids.get(topic), topic);
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> specs = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Integer>> different = new HashSet<>();
        members.forEach((id, member) -> {
            Set<Uuid> wanted = new HashSet<>();
            member.wanted.forEach(topic -> wanted.add(ids.get(topic)));
            different.add(new HashSet<>(member.wanted));
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            member.owned.forEach((topic, some) -> {
                owned.put(ids.get(topic), some);
                some.forEach(p ->
                    owners.computeIfAbsent(ids.get(topic), k -> new HashMap<>()).put(p, id));
            });
            specs.put(id, new MemberSubscriptionAndAssignmentImpl(
                member.rack, member.instance, wanted,
                new org.apache.kafka.coordinator.group.modern.Assignment(owned)));
        });
        SubscriptionType type = different.size() == 1
            ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid id) {
                return partitions[numbers.get(id)];
            }

            @Override
            public Set<String> racksForPartition(Uuid id, int partition) {
                return Set.of();
            }
        };
        return () -> {
            long start = System.nanoTime();
            Map<String, MemberAssignment> result =
                assignor.assign(new GroupSpecImpl(specs, type, owners), describer).members();
            nanoseconds = System.nanoTime() - start;
            Map<String, Map<String, Set<Integer>>> answer = new HashMap<>();
            result.forEach((id, assignment) -> {
                Map<String, Set<Integer>> all = new HashMap<>();
                assignment.partitions().forEach((topic, some) ->
                    all.put(topics.get(numbers.get(topic)), some));
                answer.put(id, all);
            });
            return answer;
        };
    }
}
