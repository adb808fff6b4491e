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

  /** Says what goes the stock way, unless that was said already for the same reason; the details of the first case stand for all. */
  static void stock(String what, Object reason, String details) {
    if (TOLD.add(what + '\0' + reason)) {
      LOG.warn("{} the stock way: {}{}", what, reason, details == null || details.isEmpty() ? "" : " (" + details + ")");
    }
  }

  static void stock(String what, String reason) {
    stock(what, reason, "");
  }

  static void info(String what, Object... values) {
    LOG.info(what, values);
  }
}
