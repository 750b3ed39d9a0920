/** A process that floods a gate with forged bodies of 1 MiB, and prints how many responses of each status it got: `node flood.ts NAME PORT MILLISECONDS`. */
import { argv, stdout } from 'node:process';
import { makeDelivery } from '../../test/support/deliveries.ts';
import { flood, toHead } from '../../test/support/floods.ts';
import { floodHttp2 } from '../../test/support/floods-http2.ts';

/** The protocol. */
export type FloodName = 'http1' | 'http2';

const PATH = '/hooks/billing';
const BODY = Buffer.alloc(1024 * 1024, 0x61);
const CONNECTIONS = 512;
const SESSIONS = 16;
/** The number of large bodies that the gate reads concurrently on a connection. */
const STREAMS = 10;
/** Well-formed, so that the whole body must be read before it can be rejected. */
const FORGED = makeDelivery({ secret: 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' }).headers;

const [, , name = '', portText = '', millisecondsText = ''] = argv;
const options = { port: Number(portText), milliseconds: Number(millisecondsText) };

const FLOODS: Readonly<Record<FloodName, () => Promise<Readonly<Record<string, number>>>>> = {
  http1: async () => {
    const head = toHead(PATH, { ...FORGED, 'Content-Length': String(BODY.length) });
    return (await flood({ ...options, connections: CONNECTIONS, request: () => [head, BODY] })).statuses;
  },
  http2: () => floodHttp2({ ...options, sessions: SESSIONS, streams: STREAMS, headers: FORGED, body: BODY }),
};

if (name in FLOODS) stdout.write(JSON.stringify(await FLOODS[name as FloodName]()));
