package fencepost.spark.lease;

import java.io.EOFException;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketException;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.HexFormat;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

/** TLS to a driver that is known by the fingerprint of its certificate. Follows Python's `lease/tls.py`. */
final class PinnedTls {
    private PinnedTls() {}

    /** Throws what the socket says if the driver closes the connection in the middle of the handshake. */
    static Socket wrap(Socket plain, LeaseAddress address) throws IOException {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, new TrustManager[] {new ByFingerprint(address.fingerprint())}, null);
            SSLSocket socket =
                    (SSLSocket) context.getSocketFactory().createSocket(plain, address.host(), address.port(), true);
            socket.setEnabledProtocols(new String[] {"TLSv1.3"});
            socket.startHandshake();
            return socket;
        } catch (GeneralSecurityException e) {
            throw new IOException(e);
        } catch (SSLException e) {
            for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
                if (cause instanceof EOFException || cause instanceof SocketException) {
                    throw (IOException) cause;
                }
            }
            throw e;
        }
    }

    /** Names and authorities do not matter: the certificate was made by the driver, for its run. */
    private static final class ByFingerprint extends X509ExtendedTrustManager {
        private final String expected;

        ByFingerprint(String expected) {
            this.expected = expected;
        }

        private void check(X509Certificate[] chain) throws CertificateException {
            try {
                byte[] digest = MessageDigest.getInstance("SHA-256").digest(chain[0].getEncoded());
                String found = HexFormat.of().formatHex(digest);
                if (!MessageDigest.isEqual(found.getBytes(), expected.getBytes())) {
                    throw new CertificateException(
                            "its certificate has the fingerprint " + found + ", expected " + expected);
                }
            } catch (GeneralSecurityException e) {
                throw e instanceof CertificateException c ? c : new CertificateException(e);
            }
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
            throw new CertificateException("a driver has no clients with certificates");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
            checkClientTrusted(chain, type);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
            checkClientTrusted(chain, type);
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
