package io.headwater.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("quick")
class BlockNameTest {
  @Test
  void blocks_and_batches_of_them_are_partitions_of_an_output() {
    assertEquals(new BlockName(3, 5_000_000_000L, 7, 1), BlockName.parse("shuffle_3_5000000000_7"));
    assertEquals(new BlockName(3, 17, 4, 5), BlockName.parse("shuffle_3_17_4_9"));
  }

  @Test
  void all_else_is_left_to_the_stock_client() {
    for (String block : new String[] {
      "shuffleChunk_1_2_3_4", "shuffleMerged_1_2_3", "rdd_1_2", "shuffle_1_2_3.data", "shuffle_1_2", "shuffle_1_2_9_4",
      "shuffle_1_2_3_3", "shuffle_99999999999_1_1", "shufflePush_1_2_3_4", "shuffle_-1_2_3",
    }) {
      assertNull(BlockName.parse(block), block);
    }
  }
}
