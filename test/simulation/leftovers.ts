/** What processes still have after all work is done, and after they stopped: there must be nothing. */
import type { GateNode } from './gate-node.ts';
import { MessageReader } from './http-text.ts';
import { ADMIN_PORT } from './machine-config.ts';
import type { World } from './world.ts';

const STOP_MS = 60_000;
/** Idle connections to apps and endpoints are closed by then. */
const IDLE_MS = 120_000;
const SCRAPE_MS = 5_000;
/** Series that must be 0 while nobody sends anything. */
const GAUGES =
  /^(sidegate_(?:requests_in_flight|requests_queued|buffered_body_bytes|connections|waiting\w*|provider_(?:slots|lanes)\w*))(?:\{[^}]*\})? (\S+)$/gm;

export async function findLeftovers(world: World, gates: readonly GateNode[], closeClients: () => void): Promise<string[]> {
  const { scheduler, network } = world;
  scheduler.after(0, world.outside, closeClients);
  await scheduler.run(scheduler.now + IDLE_MS);
  const found: string[] = [];
  for (const gate of gates) found.push(...(await findHeld(world, gate)));
  for (const gate of gates) {
    let isFinished: boolean | undefined;
    gate.stop().then(
      (result) => {
        isFinished = result;
      },
      (error: unknown) => found.push(`${gate.owner.name} does not stop: ${String(error)}`),
    );
    await scheduler.run(scheduler.now + STOP_MS);
    const { name } = gate.owner;
    if (isFinished !== true) found.push(`${name} did not finish everything when it stopped (${isFinished})`);
    const timers = scheduler.pendingOf(gate.owner);
    const sockets = network.openSockets(gate.owner).length;
    if (timers > 0) found.push(`${name} has ${timers} timers after it stopped`);
    if (sockets > 0) found.push(`${name} has ${sockets} sockets after it stopped`);
  }
  return found;
}

/** Reads the metrics of an idle gate. */
async function findHeld(world: World, { machine, owner }: GateNode): Promise<string[]> {
  const { scheduler, network, outside } = world;
  let text: string | undefined;
  scheduler.after(0, outside, () => {
    const socket = network.connect(outside, { host: machine, port: ADMIN_PORT });
    const reader = new MessageReader();
    socket.on('error', () => socket.destroy());
    socket.on('data', (bytes: Buffer) => {
      const [message] = reader.push(bytes);
      if (message === undefined) return;
      text = message.body.toString();
      socket.destroy();
    });
    socket.write('GET /metrics HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n');
  });
  await scheduler.run(scheduler.now + SCRAPE_MS);
  if (text === undefined) return [`${owner.name} does not report its metrics`];
  return [...text.matchAll(GAUGES)]
    .filter(([, , value]) => Number(value) !== 0)
    .map(([line]) => `${owner.name} still has ${line}`);
}
