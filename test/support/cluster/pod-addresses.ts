/** Pods have addresses that the API server takes, and processes on this machine have loopback addresses: one rule leads from one to the other. */

/** Addresses of one pod. */
export interface PodAddresses {
  /** As its status tells; endpoints may not be loopback addresses. */
  readonly podIp: string;
  /** Where its processes listen for others. */
  readonly outer: string;
  /** What 127.0.0.1 is within it. */
  readonly inner: string;
}

const FIRST_NET = 128;
const NETS = 60;
/** Lies beyond FIRST_NET + NETS, and ClusterIPs lie below both. */
const INNER_OFFSET = 64;

let next = 0;

/** Addresses that no other pod of this process has; those of other processes mostly differ, too. */
export function takeAddresses(): PodAddresses {
  next++;
  const net = FIRST_NET + (process.pid % NETS);
  const rest = `${Math.floor(process.pid / NETS) % 250}.${(next % 250) + 1}`;
  return { podIp: `10.${net}.${rest}`, outer: `127.${net}.${rest}`, inner: `127.${net + INNER_OFFSET}.${rest}` };
}

/** Where an address of a pod is reached on this machine; any other stays as it is. */
export function toReachable(ip: string): string {
  const match = /^10\.(\d+)\.(.+)$/.exec(ip);
  return match !== null && Number(match[1]) >= FIRST_NET ? `127.${match[1]}.${match[2]}` : ip;
}
