/** A port without routes, for the admin port and the API of the sending side: strict HTTP with its own limits, one request after the other. */
import type { Server } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { Clock } from '../../core/clock.ts';
import type { ListenAddress } from '../../core/listen-address.ts';
import type { Refusal } from '../../core/refusal.ts';
import { type ClientCertificates, watchCertificates } from '../../http/server/client-certificates.ts';
import { type BodyLimits, BodyWatch } from '../../http/server/limits.ts';
import { type BoundAddress, Listener } from '../../http/server/listener.ts';
import type { MemoryPressure } from '../../http/server/memory-guard.ts';
import { type ClientLimits, PortClients } from '../../http/server/port-clients.ts';
import { type PortRequest, PortRequests } from '../../http/server/port-requests.ts';
import { type ClientErrors, createStrictServer, type StrictLimits } from '../../http/server/strict-server.ts';
import type { TlsContexts } from '../../http/server/tls.ts';
import { createPlainErrors } from './respond.ts';

const NO_LIMIT = (): void => undefined;

/** The port; it does not listen yet. */
export class PlainPort {
  readonly #server: Server | TlsServer;
  readonly #clients: PortClients;
  readonly #bodies: BodyWatch;
  readonly #errors: ClientErrors;
  readonly #listener: Listener;
  readonly #tls: TlsContexts | undefined;
  readonly #certificates: ClientCertificates | undefined;

  /** `handle` responds, with a rejection if there is one. */
  constructor(
    options: {
      readonly address: ListenAddress;
      readonly limits: StrictLimits & ClientLimits;
      readonly bodies: BodyLimits;
      readonly tls: TlsContexts | undefined;
      readonly memory: MemoryPressure;
      readonly clock: Clock;
    },
    handle: (received: PortRequest, rejection: Refusal | undefined) => Promise<void>,
  ) {
    const { address, limits, bodies, tls, memory, clock } = options;
    this.#tls = tls;
    this.#server = createStrictServer(limits, tls && { contexts: tls, clock, memory, onLimit: NO_LIMIT }, {});
    this.#certificates = watchCertificates(this.#server, tls, clock, (socket) => {
      if (!this.#errors.endConnection(socket)) socket.destroy();
    });
    this.#clients = new PortClients(this.#server, { limits, shared: [], clock, onLimit: NO_LIMIT, tls, memory });
    this.#bodies = new BodyWatch(bodies, clock, NO_LIMIT, memory);
    this.#errors = createPlainErrors(clock);
    this.#listener = new Listener(this.#server, address);
    const requests = new PortRequests({
      errors: this.#errors,
      clients: this.#clients,
      bodies: this.#bodies,
      onLimit: NO_LIMIT,
      maxHeaderFields: limits.maxHeaderFields,
      handle: (received) => {
        const { request, response, body, tracked, refusal } = received;
        body.client = request.socket.remoteAddress ?? '';
        const ended = this.#certificates?.refuse(this.#certificates.find(request.socket), response);
        return handle(received, this.#clients.admit(tracked, body.client, false) ?? ended ?? refusal);
      },
    });
    requests.bind(this.#server);
  }

  /** Opens the port; rejects with the system's error. */
  listen(): Promise<BoundAddress> {
    return this.#listener.open();
  }

  /** Closes the port and the connections without a request. */
  endIdle(): void {
    this.#listener.close();
    this.#errors.endConnections();
    this.#server.closeIdleConnections();
  }

  /** Closes the port and all connections immediately. */
  close(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
    this.#clients.close();
    this.#certificates?.close();
    this.#bodies.close();
  }

  /** Uses the current TLS contexts for new connections. */
  refreshTls(): void {
    if (this.#tls !== undefined) (this.#server as TlsServer).setSecureContext(this.#tls.toServerOptions());
    this.#certificates?.refresh();
  }
}
