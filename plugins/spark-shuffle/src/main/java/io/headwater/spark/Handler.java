package io.headwater.spark;

import java.util.function.Predicate;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/** What an endpoint does with its messages, as the engine wants to have it. */
final class Handler extends AbstractPartialFunction<Object, BoxedUnit> {
  private final Predicate<Object> handle;

  /** @param handle false for a message that is none of its */
  Handler(Predicate<Object> handle) {
    this.handle = handle;
  }

  @Override
  public boolean isDefinedAt(Object message) {
    return true;
  }

  @Override
  public BoxedUnit apply(Object message) {
    if (!handle.test(message)) {
      throw new IllegalArgumentException("unexpected message " + message);
    }
    return BoxedUnit.UNIT;
  }
}
