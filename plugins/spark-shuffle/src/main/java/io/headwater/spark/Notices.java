package io.headwater.spark;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Log lines about what goes the stock way: each reason is told once by each process, however many blocks it concerns. */
final class Notices {
  private static final Logger LOG = LoggerFactory.getLogger("io.headwater.spark");
  private static final Set<String> TOLD = ConcurrentHashMap.newKeySet();

  private Notices() {}

  /** Says what goes the stock way, unless that was said already. */
  static void stock(String what, String why) {
    if (TOLD.add(what + '\0' + why)) {
      LOG.warn("{} the stock way: {}", what, why);
    }
  }

  static void info(String what, Object... values) {
    LOG.info(what, values);
  }
}
