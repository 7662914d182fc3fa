import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.CRC32;
import org.apache.datasketches.common.ArrayOfStringsSerDe;
import org.apache.datasketches.frequencies.ErrorType;
import org.apache.datasketches.frequencies.ItemsSketch;
import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.kll.KllDoublesSketch;
import org.apache.datasketches.memory.Memory;
import org.apache.datasketches.theta.CompactSketch;
import org.apache.datasketches.theta.SetOperation;
import org.apache.datasketches.theta.Union;

/** Reads states of counters as docs/internals/formats.md describes, and prints its own estimates beside theirs. */
public class Sketches {
  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]);
    int items = Integer.parseInt(arguments[1]);
    HllSketch distinct = new HllSketch(12);
    Union audience = SetOperation.builder().buildUnion();
    for (int number = 0; number < items; number++) {
      distinct.update("visitor-" + number);
      audience.update("visitor-" + number);
    }
    report("distinct", HllSketch.heapify(body(folder, "distinct")).getEstimate());
    report("distinct here", distinct.getCompositeEstimate());
    report("audience", CompactSketch.heapify(Memory.wrap(body(folder, "audience"))).getEstimate());
    report("audience here", audience.getResult().getEstimate());
    KllDoublesSketch quantiles = KllDoublesSketch.heapify(Memory.wrap(body(folder, "quantiles")));
    report("quantiles", quantiles.getN());
    report("median", quantiles.getQuantile(0.5));
    ItemsSketch<String> topk =
        ItemsSketch.getInstance(Memory.wrap(body(folder, "topk")), new ArrayOfStringsSerDe());
    ItemsSketch.Row<String> first = topk.getFrequentItems(ErrorType.NO_FALSE_NEGATIVES)[0];
    report("topk", topk.getStreamLength());
    report(first.getItem(), first.getEstimate());
  }

  static void report(String what, double number) {
    System.out.println(what + "=" + number);
  }

  static byte[] body(Path folder, String type) throws Exception {
    byte[] state = Files.readAllBytes(folder.resolve(type));
    byte[] body = Arrays.copyOfRange(state, 5, state.length);
    CRC32 checksum = new CRC32();
    checksum.update(body);
    long expected = 0;
    for (int at = 4; at >= 1; at--) {
      expected = expected << 8 | state[at] & 0xff;
    }
    if (state[0] != 1 || expected != checksum.getValue()) {
      throw new IllegalStateException("no state of version 1: " + type);
    }
    return body;
  }
}
