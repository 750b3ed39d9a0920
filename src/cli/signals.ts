/** Waits for the signals that stop a running command. */

/** Resolves with the first signal; a second one ends the process immediately. */
export function untilSignal(): Promise<string> {
  return new Promise((resolve) => {
    let isStopping = false;
    for (const [signal, number] of [
      ['SIGTERM', 15],
      ['SIGINT', 2],
    ] as const) {
      process.on(signal, () => {
        if (isStopping) process.exit(128 + number);
        isStopping = true;
        resolve(signal);
      });
    }
  });
}
