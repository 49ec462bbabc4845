package fencepost.spark.lease;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import org.apache.spark.TaskKilledException;

/** A task that connects to its driver in a thread, while it does something else. */
final class Connecting {
    private final CompletableFuture<LeaseClient> result = new CompletableFuture<>();
    private final Thread thread;

    private Connecting(Supplier<LeaseClient> connect, String name) {
        thread = new Thread(
                () -> {
                    try {
                        result.complete(connect.get());
                    } catch (Throwable e) {
                        result.completeExceptionally(e);
                    }
                },
                name);
        thread.setDaemon(true);
        thread.start();
    }

    /**
     * Connects while `meanwhile` runs. A task that fails there still connects first: the driver sees by all attempts that
     * begin, also by those that write nothing, whether Spark runs a stage again. A task that was killed does not wait.
     */
    static LeaseClient beside(
            Runnable meanwhile, BooleanSupplier isKilled, Supplier<LeaseClient> connect, String threadName) {
        Connecting connecting = new Connecting(connect, threadName);
        try {
            meanwhile.run();
        } catch (Throwable e) {
            if (!isKilled.getAsBoolean()) {
                connecting.awaitEnd();
            }
            connecting.giveUp();
            throw e;
        }
        return connecting.await();
    }

    private LeaseClient await() {
        try {
            return result.get();
        } catch (InterruptedException e) {
            giveUp();
            Thread.currentThread().interrupt();
            throw new TaskKilledException("interrupted");
        } catch (ExecutionException e) {
            if (e.getCause() instanceof RuntimeException problem) {
                throw problem;
            }
            throw new IllegalStateException(e.getCause());
        }
    }

    private void awaitEnd() {
        try {
            thread.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** A connection that is there later is closed then. */
    private void giveUp() {
        thread.interrupt();
        result.thenAccept(LeaseClient::close);
    }
}
