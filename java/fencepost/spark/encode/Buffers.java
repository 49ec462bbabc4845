package fencepost.spark.encode;

import java.util.ArrayDeque;

/** Buffers that a task uses again and again: large arrays are expensive for Java's memory management. */
public final class Buffers {
    private static final int SMALLEST = 1 << 14;

    private final ArrayDeque<byte[]> free = new ArrayDeque<>();
    private final int mostFree;

    /** mostFree: how many are kept while they are not used. */
    public Buffers(int mostFree) {
        this.mostFree = mostFree;
    }

    synchronized byte[] take() {
        return free.isEmpty() ? new byte[SMALLEST] : free.pop();
    }

    public synchronized void giveBack(byte[] buffer) {
        if (free.size() < mostFree) {
            free.push(buffer);
        }
    }
}
