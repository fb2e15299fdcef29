(** Every hyper-parameter of a convolution, and the head dimension.

    book/theorem.md, "Every hyper-parameter of a convolution" and "Head dimension";
    attnconv.layers.conv.ConvAsAttention.  Padding is in lemma_1_padded and theorem_1. *)

From mathcomp Require Import all_ssreflect all_algebra reals.
From AttnConv Require Import Attention Lemma1 Theorem1 Lemma3.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** * Stride, dilation and groups *)

Definition scale (d : shift) (p : pixel) : pixel := (d.1 * p.1, d.2 * p.2).

(** Output [o] of group [g] at the strided query [q]; [W delta g] is the matrix of that group. *)
Definition strided_conv (R : ringType) (stride dilation : shift) G Cin Cout Delta
    (W : shift -> 'I_G -> 'M[R]_(Cin, Cout)) (b : 'rV_(G * Cout)) (X : image R (G * Cin)) q g o :
    R :=
  \sum_(delta <- Delta) \sum_i
    X (scale stride q + scale dilation delta) 0 (mxvec_index g i) * W delta g i o
  + b 0 (mxvec_index g o).

(** The block diagonal matrix. *)
Definition block_diagonal (R : ringType) G Cin Cout (W : 'I_G -> 'M[R]_(Cin, Cout)) :
    'M_(G * Cin, G * Cout) :=
  \matrix_(r, c) mxvec (\matrix_(g, i)
    mxvec (\matrix_(g', o) (if g == g' then W g i o else 0)) 0 c) 0 r.

Lemma mul_block_diagonal (R : comRingType) G Cin Cout (W : 'I_G -> 'M[R]_(Cin, Cout))
    (x : 'rV_(G * Cin)) g o :
  (x *m block_diagonal W) 0 (mxvec_index g o) = \sum_i x 0 (mxvec_index g i) * W g i o.
Proof.
rewrite mxE (reindex _ (curry_mxvec_bij _ _)) /=.
pose T g' i := x 0 (mxvec_index g' i) * (if g' == g then W g' i o else 0).
transitivity (\sum_g' \sum_i T g' i).
  by rewrite pair_bigA; apply: eq_bigr => -[g' i] _; rewrite !mxE !mxvecE !mxE mxvecE mxE.
rewrite (bigD1 g) //= [X in _ + X]big1 ?addr0 => [|g' /negPf gg']; rewrite /T.
  by apply: eq_bigr => i _; rewrite eqxx.
by rewrite gg' big1 // => i _; rewrite mulr0.
Qed.

(** A strided, dilated, grouped convolution is one with spread shifts and block diagonal matrices,
    at every [stride]-th query. *)
Definition unscale (d : shift) (delta : shift) : shift := ((delta.1 %/ d.1)%Z, (delta.2 %/ d.2)%Z).

Lemma strided_convE (R : comRingType) stride dilation G Cin Cout Delta
    (W : shift -> 'I_G -> 'M[R]_(Cin, Cout)) b X q g o :
  dilation.1 != 0 -> dilation.2 != 0 ->
  strided_conv stride dilation Delta W b X q g o =
  conv (map (scale dilation) Delta) (fun delta => block_diagonal (W (unscale dilation delta))) b X
    (scale stride q) 0 (mxvec_index g o).
Proof.
move=> d1 d2; rewrite mxE summxE big_map; congr (_ + _); apply: eq_bigr => delta _.
by rewrite mul_block_diagonal /unscale /= !mulKz // -surjective_pairing.
Qed.

(** ** Theorem 1 for every hyper-parameter

    For every stride, dilation (neither component 0), number of groups, kernel over any list of
    shifts, bound [B] and [eps > 0] there is a self-attention layer with one head per shift,
    with [D_h] at least the number of outputs and [3 <= D_p] and [0 < D_k], which, at every
    [stride]-th query whose (spread) kernel lies in the image, already padded, is within [eps]
    of the strided, dilated, grouped convolution, on images of every size. *)
Theorem hyper_parameters (R : realType) stride dilation G Cin Cout Dh Dk Dp Delta
    (W : shift -> 'I_G -> 'M[R]_(Cin, Cout)) b B eps :
  dilation.1 != 0 -> dilation.2 != 0 -> (G * Cout <= Dh)%N -> (3 <= Dp)%N -> (0 < Dk)%N ->
  0 <= B -> 0 < eps ->
  exists L : layer R (size Delta) (G * Cin) Dh (G * Cout) Dk Dp,
  forall p H W' (X : image R (G * Cin)) q g o, let S := rectangle p H W' in
  (forall k i, k \in S -> `|X k 0 i| <= B) ->
  (forall delta, delta \in Delta -> scale stride q + scale dilation delta \in S) ->
  `|apply_layer L S X (scale stride q) 0 (mxvec_index g o)
    - strided_conv stride dilation Delta W b X q g o| < eps.
Proof.
move=> d1 d2 dims Dp3 DpDk B0 eps0.
have [L close] := theorem_1_any_kernel (fun delta => block_diagonal (W (unscale dilation delta))) b
  (size_map (scale dilation) Delta) dims (@inj_id _) Dp3 DpDk B0 eps0.
exists L => p H W' X q g o S XB qS; rewrite strided_convE //; apply: close => //.
by move=> _ /mapP[delta dD ->]; apply: qS.
Qed.

(** * The head dimension *)

Section HeadDimension.
Variables (F : fieldType) (N Din Dh Dout : nat).

(** ** The rank of W^(h)

    Each [W^(h)] has rank at most [D_h]. *)
Theorem rank_value_matrix (Wval : 'I_N -> 'M[F]_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) h :
  (\rank (value_matrix Wval Wout h) <= Dh)%N.
Proof. by rewrite (leq_trans (mxrankM_maxl _ _)) // rank_leq_col. Qed.

Variables (S : seq pixel) (Delta : seq shift) (f : 'I_N -> shift).
Hypotheses (S_uniq : uniq S) (Delta_uniq : uniq Delta) (f_Delta : perm_eq (codom f) Delta).
Let hard h (q k : pixel) : F := (k - q == f h)%:R.

Lemma f_in h : f h \in Delta. Proof. by rewrite -(perm_mem f_Delta) codom_f. Qed.

(** ** Any D_h of the outputs

    With hard heads, any [D_h] of the outputs can be any convolution with [D_h] output channels. *)
Theorem any_Dh_outputs (g : 'I_Dh -> 'I_Dout) (W : shift -> 'M_(Din, Dh)) b : injective g ->
  exists (Wval : 'I_N -> 'M_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) bout,
  forall X q o, interior S Delta q ->
  mhsa S hard Wval Wout bout X q 0 (g o) = conv Delta W b X q 0 o.
Proof.
move=> g_inj; exists (wide_values Dh (fun h => W (f h))), (wide_out F N Dh g), (b *m select F g).
by move=> X q o qS; apply: (@lemma_1_outputs _ _ _ _ _ _ _ Delta f _ W _ b g).
Qed.

(** ** Few input channels

    If [D_in <= D_h], hard heads can be every convolution, with any number of outputs. *)
Theorem few_inputs : (Din <= Dh)%N -> @expresses F N Din Dh Dout S Delta hard.
Proof.
move=> dims W b; exists (fun _ => pid_mx Din), (stack (fun h => pid_mx Din *m W (f h))), b.
move=> X q qS.
rewrite (@eq_13 _ _ _ _ _ _ f) // => [|h]; last exact/qS/f_in.
rewrite /conv (sum_heads _ f_Delta); congr (_ + _); apply: eq_bigr => h _.
rewrite /value_matrix out_block_stack (mulmxA (pid_mx _)) mul_pid_mx minnn (minn_idPr dims).
by rewrite pid_mx_1 mul1mx.
Qed.

(** Refuted: that hard heads of a dimension below both [D_in] and [D_out] suffice for every
    convolution, if there are a head and an interior query. *)
Theorem head_dimension_refuted (h : 'I_N) q :
  (Dh < minn Din Dout)%N -> interior S Delta q -> ~ @expresses F N Din Dh Dout S Delta hard.
Proof.
move=> dims qS expr; have f_inj : injective f.
  by apply/injectiveP; rewrite /injectiveb /dinjectiveb -/(codom f) (perm_uniq f_Delta).
have [Wval [Wout [bout same]]] := expr (fun e => (e == f h)%:R *: pid_mx (minn Din Dout)) 0.
have at_q X : \sum_h' X (q + f h') *m value_matrix Wval Wout h' + bout =
    X (q + f h) *m pid_mx (minn Din Dout).
  rewrite -(conv_single _ _ _ Delta_uniq (f_in h)) -same //.
  by rewrite (@eq_13 _ _ _ _ _ _ f) // => h'; apply/qS/f_in.
have bout0 : bout = 0.
  by have := at_q (fun _ => 0); rewrite mul0mx big1 ?add0r // => ? _; rewrite mul0mx.
suff value : value_matrix Wval Wout h = pid_mx (minn Din Dout).
  have := rank_value_matrix Wval Wout h; rewrite value rank_pid_mx ?geq_minl ?geq_minr //.
  by rewrite leqNgt dims.
apply/row_matrixP=> i; have := at_q (fun k => (k == q + f h)%:R *: delta_mx 0 i).
rewrite eqxx scale1r bout0 addr0 (bigD1 h) //= eqxx scale1r -!rowE big1 ?addr0 // => h' hh'.
by rewrite (inj_eq (addrI _)) (inj_eq f_inj) (negPf hh') scale0r mul0mx.
Qed.
End HeadDimension.

(** Refuted: that [W^(h)] is of rank [D_out - D_h], as the paper says where [D_h = D_out / N_h]:
    with three heads or more that is more than [D_h], which bounds the rank. *)
Theorem rank_printed_refuted (F : fieldType) N Din Dh (Wval : 'I_N -> 'M[F]_(Din, Dh))
    (Wout : 'M_(N * Dh, N * Dh)) h :
  (2 < N)%N -> (0 < Dh)%N -> \rank (value_matrix Wval Wout h) != (N * Dh - Dh)%N.
Proof.
move=> N2 Dh0; rewrite neq_ltn (leq_ltn_trans (rank_value_matrix _ _ _)) //.
by rewrite -[X in (_ - X)%N]mul1n -mulnBl -[X in (X < _)%N]mul1n ltn_mul2r Dh0 /= ltn_subRL.
Qed.
