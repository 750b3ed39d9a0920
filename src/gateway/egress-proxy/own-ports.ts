/** The ports that this process listens on: no way through the proxy leads back into it, as what comes from here may be trusted there. */
import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';

/** Which they are. */
export class OwnPorts {
  readonly #ports = new Set<number>();

  /** More of them. */
  add(...ports: readonly number[]): void {
    for (const port of ports) this.#ports.add(port);
  }

  /** Would a connection to it come out here? */
  has(address: string, port: number): boolean {
    return this.#ports.has(port) && isLocal(address);
  }
}

/** Read anew, as a pod may gain addresses; only asked where the port fits. */
function isLocal(address: string): boolean {
  const local = new BlockList();
  local.addSubnet('127.0.0.0', 8, 'ipv4');
  // A connection to "any address" goes to this machine.
  for (const own of ['0.0.0.0', '::', '::1']) addTo(local, own);
  for (const entry of Object.values(networkInterfaces()).flat()) if (entry !== undefined) addTo(local, entry.address);
  return local.check(address, toFamily(address));
}

function addTo(list: BlockList, address: string): void {
  list.addAddress(address, toFamily(address));
}

function toFamily(address: string): 'ipv4' | 'ipv6' {
  return isIP(address) === 6 ? 'ipv6' : 'ipv4';
}
