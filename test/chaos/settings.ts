/** Times of the chaos runs: short, so that leases end and gates restart often. */

/** The app's time to respond. */
export const APP_TIMEOUT_MS = 1_000;
/** Longer than the app's timeout and the time to connect together, as the config requires. */
export const LEASE_MS = 2_500;
/** The first and the longest pause of a sender between two attempts. */
export const MIN_BACKOFF_MS = 100;
export const MAX_BACKOFF_MS = 2_000;
/** A sender gives up waiting for a response after this, plus a seeded part of it. */
export const MIN_SENDER_TIMEOUT_MS = 1_200;
/** New events of the direct sender per second. */
export const EVENTS_PER_SECOND = 150;
/** Events that the direct sender has in progress at once, including those that wait for a retry. */
export const MAX_IN_PROGRESS = 200;
/** The path of the one route. */
export const PATH = '/hooks/billing';

/** Resolves after `duration`: faults last for a time, unlike what tests wait for. */
export function lasts(duration: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, duration));
}
