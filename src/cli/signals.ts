/** Waits for the signals that stop a running command. */

/** Resolves with the first signal; for a second one, which does not wait for the drain, `exit` ends the process. */
export function untilSignal(exit: (code: number) => void): Promise<string> {
  return new Promise((resolve) => {
    let isStopping = false;
    for (const [signal, number] of [
      ['SIGTERM', 15],
      ['SIGINT', 2],
    ] as const) {
      process.on(signal, () => {
        if (isStopping) return exit(128 + number);
        isStopping = true;
        resolve(signal);
      });
    }
  });
}
